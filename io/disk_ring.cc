#include "io/disk_ring.h"

#include <liburing.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "io/file_calls.h"

namespace zero {
namespace {

// How long the system may have no room for requests while none is under way.
constexpr int kMostBusyTries = 10000;
constexpr std::chrono::milliseconds kBusyWait(1);

std::string Words(int error) { return std::generic_category().message(error); }

std::string WhyNoRing(int error) {
  switch (error) {
    case ENOSYS:
      return "this kernel has no io_uring";
    case EPERM:
    case EACCES: {
      std::ifstream file("/proc/sys/kernel/io_uring_disabled");
      std::string disabled = "absent";
      file >> disabled;
      return absl::StrCat("io_uring is not allowed (", Words(error),
                          "): by the container's seccomp profile, or by the sysctl "
                          "kernel.io_uring_disabled, which is ",
                          disabled);
    }
    case ENOMEM: {
      rlimit limit = {};
      getrlimit(RLIMIT_MEMLOCK, &limit);
      const bool limited = limit.rlim_cur != RLIM_INFINITY;
      return absl::StrCat("io_uring got no memory (", Words(error), "); the limit of locked memory",
                          " (ulimit -l) is ",
                          limited ? absl::StrCat(limit.rlim_cur, " bytes") : "none");
    }
    default:
      return absl::StrCat("io_uring: ", Words(error));
  }
}

}  // namespace

struct DiskRing::Ring {
  explicit Ring(int entries) : depth(entries) {}
  ~Ring() {
    if (made) io_uring_queue_exit(&uring);
  }

  int Make() {
    const int result = io_uring_queue_init(static_cast<unsigned>(depth), &uring, 0);
    made = result == 0;
    return -result;
  }

  bool Knows(int operation) {
    io_uring_probe* const probe = io_uring_get_probe_ring(&uring);
    if (probe == nullptr) return false;
    const bool known = io_uring_opcode_supported(probe, operation) != 0;
    io_uring_free_probe(probe);
    return known;
  }

  void Prepare(DiskBlock* block, int descriptor, size_t count, bool writes) {
    io_uring_sqe* const entry = io_uring_get_sqe(&uring);  // there are `depth`
    char* const memory = block->memory + block->done;
    const auto offset = static_cast<uint64_t>(block->offset + block->done);
    if (writes) {
      io_uring_prep_write(entry, descriptor, memory, static_cast<unsigned>(count), offset);
    } else {
      io_uring_prep_read(entry, descriptor, memory, static_cast<unsigned>(count), offset);
    }
    io_uring_sqe_set_data(entry, block);
    ++flying;
  }

  // Submits what is prepared and waits until something is done. An errno: the ring is of no use.
  int SubmitAndWait() {
    for (int busy = 0;; ++busy) {
      const int result = io_uring_submit_and_wait(&uring, 1);
      if (result >= 0 || result == -EINTR || io_uring_cq_ready(&uring) > 0) return 0;
      if ((result != -EAGAIN && result != -EBUSY) || busy == kMostBusyTries) return -result;
      std::this_thread::sleep_for(kBusyWait);
    }
  }

  // Calls done(block, result) for each request that is done.
  void Reap(absl::FunctionRef<void(DiskBlock*, int)> done) {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&uring, &entry) == 0) {
      const int result = entry->res;
      auto* const block = static_cast<DiskBlock*>(io_uring_cqe_get_data(entry));
      io_uring_cqe_seen(&uring, entry);
      --flying;
      done(block, result);
    }
  }

  const int depth;
  bool made = false;
  io_uring uring = {};
  int flying = 0;                // prepared and not reaped
  std::vector<DiskBlock*> left;  // to be prepared, the next one last
};

DiskRing::DiskRing(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}

DiskRing::~DiskRing() = default;

absl::StatusOr<std::unique_ptr<DiskRing>> DiskRing::Create(int depth) {
  auto ring = std::make_unique<Ring>(depth);
  const int error = ring->Make();
  if (error != 0) return absl::UnimplementedError(WhyNoRing(error));
  if (!ring->Knows(IORING_OP_READ) || !ring->Knows(IORING_OP_WRITE)) {
    return absl::UnimplementedError("this kernel's io_uring has no plain reads and writes");
  }
  return std::unique_ptr<DiskRing>(new DiskRing(std::move(ring)));
}

absl::Status DiskRing::Run(absl::Span<DiskBlock> blocks, const DiskFile& file, bool writes) {
  std::vector<DiskBlock*>& left = ring_->left;
  left.clear();
  for (size_t i = blocks.size(); i > 0; --i) left.push_back(&blocks[i - 1]);
  bool failed = false;
  const auto done = [&](DiskBlock* block, int result) {
    Advance(*block, file, result);
    if (!block->finished()) left.push_back(block);
    failed = failed || block->failed();
  };
  while (true) {
    while (!failed && !left.empty() && ring_->flying < ring_->depth) {
      DiskBlock* const block = left.back();
      left.pop_back();
      auto count = static_cast<size_t>(block->bytes - block->done);
      const int refused =
          Files().Admit(writes, file.descriptor(), &count, block->offset + block->done);
      if (refused != 0 || count == 0) {
        done(block, -refused);
      } else {
        ring_->Prepare(block, file.descriptor(), count, writes);
      }
    }
    if (ring_->flying == 0) return absl::OkStatus();
    const int error = ring_->SubmitAndWait();
    ring_->Reap(done);
    if (error == 0) continue;
    // The memory is the kernel's until what it has taken is done; the rest never reaches it.
    ring_->flying -= static_cast<int>(io_uring_sq_ready(&ring_->uring));
    while (ring_->flying > 0) {
      std::this_thread::sleep_for(kBusyWait);
      ring_->Reap(done);
    }
    return absl::UnavailableError(absl::StrCat("io_uring failed: ", Words(error)));
  }
}

}  // namespace zero
