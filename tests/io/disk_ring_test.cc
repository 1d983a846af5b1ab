#include "io/disk_ring.h"

#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "io/disk_queue.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/refused_calls.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

// Whether this build and this machine have io_uring.
bool HaveRing() {
  io_uring_params params = {};
  const long ring = syscall(SYS_io_uring_setup, 1, &params);
  if (ring >= 0) close(static_cast<int>(ring));
  return ZERO_HAVE_IO_URING && ring >= 0;
}

// Writes and reads a file through `queue`.
absl::Status WriteAndRead(DiskQueue& queue, const DiskFile& file) {
  const AlignedBytes written = AllocateAligned(1 << 20);
  const AlignedBytes read = AllocateAligned(1 << 20);
  for (int i = 0; i < 1 << 20; ++i) written.get()[i] = static_cast<char>(i % 251);
  const absl::Status status = queue.Write(file, 0, written.get(), 1 << 20);
  if (!status.ok()) return status;
  const absl::Status again = queue.Read(file, 0, read.get(), 1 << 20);
  if (!again.ok()) return again;
  return std::memcmp(written.get(), read.get(), 1 << 20) == 0 ? absl::OkStatus()
                                                              : absl::DataLossError("other bytes");
}

TEST_CASE("DiskRing: it is made and used wherever build and system have io_uring") {
  const bool have_ring = HaveRing();
  CHECK(DiskRing::Create(32).ok() == have_ring);
  const std::unique_ptr<DiskQueue> queue = *DiskQueue::Create();
  const std::string note = queue->note();
  CAPTURE(note);
  CHECK((note == "io_uring, 32 requests of 262144 bytes at once") == have_ring);
  CHECK((queue->way() == DiskWay::kRing) == have_ring);
}

TEST_CASE("DiskRing: a system that refuses io_uring is said with why and threads do the work",
          "[thread]") {
  struct Refusal {
    int call;
    int error;
    const char* text;
  };
  if (!HaveRing()) return;
  TemporaryFolder folder;
  const DiskFile file = *DiskFile::Create(folder.File("f"), 1 << 20);
  for (const Refusal& refusal :
       {Refusal{SYS_io_uring_setup, ENOSYS, "kernel has no io_uring"},
        Refusal{SYS_io_uring_setup, EPERM, "kernel.io_uring_disabled, which is "},
        Refusal{SYS_io_uring_setup, ENOMEM, "(ulimit -l) is "},
        Refusal{SYS_io_uring_setup, EINVAL, "io_uring: Invalid argument"},
        Refusal{SYS_io_uring_register, EINVAL, "no plain reads and writes"}}) {
    CAPTURE(refusal.text);
    bool refused = false;
    absl::Status created;
    absl::Status moved;
    std::string note;
    InThread([&] {
      refused = RefuseCall(refusal.call, refusal.error);
      created = DiskRing::Create(4).status();
      const absl::StatusOr<std::unique_ptr<DiskQueue>> queue = DiskQueue::Create();
      moved = queue.ok() ? WriteAndRead(**queue, file) : queue.status();
      if (queue.ok()) note = (*queue)->note();
    });
    REQUIRE(refused);
    CHECK(created.code() == absl::StatusCode::kUnimplemented);
    CHECK_THAT(std::string(created.message()), ContainsSubstring(refusal.text));
    CHECK(note == "pread and pwrite on 4 threads: " + std::string(created.message()));
    CHECK_OK(moved);
  }
}

TEST_CASE("DiskRing: a ring that fails later is left and threads do what it did not", "[thread]") {
  if (!HaveRing()) return;
  TemporaryFolder folder;
  const DiskFile file = *DiskFile::Create(folder.File("f"), 1 << 20);
  bool refused = false;
  absl::Status before;
  absl::Status after;
  std::string note_before;
  std::string note_after;
  DiskWay way_before = DiskWay::kThreads;
  DiskWay way_after = DiskWay::kRing;
  InThread([&] {
    DiskQueue::Options options;
    options.block_bytes = 65536;
    const std::unique_ptr<DiskQueue> queue = *DiskQueue::Create(options);
    before = WriteAndRead(*queue, file);
    note_before = queue->note();
    way_before = queue->way();
    refused = RefuseCall(SYS_io_uring_enter, EPERM);
    after = WriteAndRead(*queue, file);
    note_after = queue->note();
    way_after = queue->way();
  });
  REQUIRE(refused);
  CHECK_OK(before);
  CHECK_OK(after);
  CHECK(way_before == DiskWay::kRing);
  CHECK(way_after == DiskWay::kThreads);
  CHECK(note_before == "io_uring, 32 requests of 65536 bytes at once");
  CHECK_THAT(note_after, ContainsSubstring("4 threads: io_uring failed: Operation not permitted"));
}

TEST_CASE("DiskRing: one that fails amid a transfer first ends what is under way", "[thread]") {
  if (!HaveRing()) return;
  TemporaryFolder folder;
  const DiskFile file = *DiskFile::Create(folder.File("f"), 1 << 20);
  bool refused = false;
  absl::Status moved;
  std::string note;
  InThread([&] {
    DiskQueue::Options options;
    options.block_bytes = 65536;
    options.depth = 4;
    const std::unique_ptr<DiskQueue> queue = *DiskQueue::Create(options);
    FaultyTransfers files;
    int calls = 0;
    files.transfer = [&](bool, size_t*, off_t) {
      if (++calls == 6) refused = RefuseCall(SYS_io_uring_enter, EPERM);
      return 0;
    };
    moved = WriteAndRead(*queue, file);
    note = queue->note();
  });
  REQUIRE(refused);
  CHECK_OK(moved);
  CHECK_THAT(note, ContainsSubstring("io_uring failed: Operation not permitted"));
}

TEST_CASE("DiskQueue: without io_uring on purpose it says so") {
  DiskQueue::Options options;
  options.io_uring = false;
  options.threads = 2;
  const std::unique_ptr<DiskQueue> queue = *DiskQueue::Create(options);
  CHECK(queue->way() == DiskWay::kThreads);
  CHECK(queue->note() == "pread and pwrite on 2 threads: io_uring was not asked for");
}

}  // namespace
}  // namespace zero
