#include "offload/disk_lane.h"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "io/aligned_bytes.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

std::unique_ptr<DiskLane> NewLane(HostDevice& device, const std::string& name, const DiskFile& file,
                                  std::function<void(const absl::Status&)> on_failure = nullptr) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateHostStream(name);
  REQUIRE_OK(stream.status());
  DiskLane::Options options;
  options.on_failure = std::move(on_failure);
  absl::StatusOr<std::unique_ptr<DiskLane>> lane =
      DiskLane::Create(*std::move(stream), &file, std::move(options));
  REQUIRE_OK(lane.status());
  return *std::move(lane);
}

DiskFile NewFile(const TemporaryFolder& folder, int64_t bytes) {
  absl::StatusOr<DiskFile> file = DiskFile::Create(folder.File("file"), bytes);
  REQUIRE_OK(file.status());
  return *std::move(file);
}

TEST_CASE("DiskLane: what one lane writes another reads after an event", "[thread]") {
  TemporaryFolder folder;
  const DiskFile file = NewFile(folder, 1 << 20);
  HostDevice device;
  const AlignedBytes from_bytes = AllocateAligned(1 << 20);
  const AlignedBytes to_bytes = AllocateAligned(1 << 20);
  int* const from = reinterpret_cast<int*>(from_bytes.get());
  int* const to = reinterpret_cast<int*>(to_bytes.get());
  std::iota(from, from + (1 << 18), 1);
  std::fill(to, to + (1 << 18), 0);
  const std::unique_ptr<DiskLane> writer = NewLane(device, "write", file);
  const std::unique_ptr<DiskLane> reader = NewLane(device, "read", file);
  const std::unique_ptr<Event> written = *device.CreateEvent();
  REQUIRE_OK(writer->EnqueueWrite({{0, from, 1 << 19}, {1 << 19, from + (1 << 17), 1 << 19}}));
  REQUIRE_OK(written->Record(writer->stream()));
  REQUIRE_OK(reader->stream().Wait(*written));
  REQUIRE_OK(reader->EnqueueRead({{1 << 19, to + (1 << 17), 1 << 19}}));
  REQUIRE_OK(reader->EnqueueRead(0, to, 1 << 19));
  CHECK_OK(reader->stream().Synchronize());
  CHECK(std::equal(to, to + (1 << 18), from));
  CHECK(writer->traffic().bytes_written == 1 << 20);
  CHECK(writer->traffic().bytes_read == 0);
  CHECK(reader->traffic().bytes_read == 1 << 20);
  CHECK(reader->traffic().bytes_written == 0);
  CHECK(reader->traffic().busy_seconds > 0);
  REQUIRE_OK(reader->EnqueueRead(1, to, 1));
  CHECK_OK(reader->stream().Synchronize());
  CHECK(reader->traffic().bytes_copied == (file.direct() ? 1 : 0));
  CHECK(!reader->note().empty());
}

TEST_CASE("DiskLane: a transfer that fails is told before an event behind it is reached",
          "[thread]") {
  TemporaryFolder folder;
  const DiskFile file = NewFile(folder, 1 << 20);
  HostDevice device;
  std::vector<char> bytes(4096);
  std::vector<absl::Status> told;
  const std::unique_ptr<DiskLane> lane =
      NewLane(device, "lane", file, [&](const absl::Status& status) { told.push_back(status); });
  FaultyTransfers files;
  files.transfer = [](bool writes, size_t*, off_t offset) {
    return writes && offset == 8192 ? EIO : 0;
  };
  REQUIRE_OK(lane->EnqueueWrite(4096, bytes.data(), 4096));
  REQUIRE_OK(lane->EnqueueWrite(8192, bytes.data(), 4096));
  REQUIRE_OK(lane->EnqueueRead(4096, bytes.data(), 4096));
  const std::unique_ptr<Event> event = *device.CreateEvent();
  REQUIRE_OK(event->Record(lane->stream()));
  const absl::Status status = event->Synchronize(absl::InfiniteDuration());
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(told.size() == 1);
  CHECK(told[0] == status);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(file.path() + ": writing 4096 bytes at byte 8192"));
  CHECK(lane->traffic().bytes_written == 4096);
  CHECK(lane->traffic().bytes_read == 0);
}

TEST_CASE("DiskLane: a failure that it waited for is told too", "[thread]") {
  TemporaryFolder folder;
  const DiskFile file = NewFile(folder, 4096);
  HostDevice device;
  std::vector<char> bytes(4096);
  std::vector<absl::Status> told;
  const std::unique_ptr<DiskLane> lane =
      NewLane(device, "lane", file, [&](const absl::Status& status) { told.push_back(status); });
  const std::unique_ptr<Stream> other = *device.CreateStream("other");
  REQUIRE_OK(other->Enqueue("fails", [] { return absl::DataLossError("planted"); }));
  const std::unique_ptr<Event> event = *device.CreateEvent();
  REQUIRE_OK(event->Record(*other));
  REQUIRE_OK(lane->stream().Wait(*event));
  REQUIRE_OK(lane->EnqueueRead(0, bytes.data(), 4096));
  REQUIRE_OK(lane->EnqueueRead(0, bytes.data(), 4096));
  CHECK(lane->stream().Synchronize().message() == "planted");
  REQUIRE(told.size() == 1);
  CHECK(told[0].message() == "planted");
  CHECK(lane->traffic().bytes_read == 0);
}

TEST_CASE("DiskLane: its destructor waits for what was enqueued", "[thread]") {
  TemporaryFolder folder;
  const DiskFile file = NewFile(folder, 1 << 20);
  HostDevice device;
  const std::vector<char> bytes(1 << 20, 'x');
  {
    const std::unique_ptr<DiskLane> lane = NewLane(device, "lane", file);
    for (int i = 0; i < 16; ++i) {
      REQUIRE_OK(lane->EnqueueWrite(i << 16, bytes.data(), 1 << 16));
    }
  }
  CHECK(ReadFile(file.path()) == std::string(bytes.begin(), bytes.end()));
}

TEST_CASE("DiskLane: ranges outside of the file fail the stream", "[thread]") {
  TemporaryFolder folder;
  const DiskFile file = NewFile(folder, 4096);
  HostDevice device;
  char byte = 0;
  const std::unique_ptr<DiskLane> lane = NewLane(device, "lane", file);
  REQUIRE_OK(lane->EnqueueRead(4096, &byte, 1));
  CHECK(lane->stream().Synchronize().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace zero
