#include "bench/disk_copies.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/samples.h"
#include "device/status.h"
#include "io/aligned_bytes.h"
#include "io/posix_file.h"

namespace zero::bench {
namespace {

constexpr int64_t kRequest = 1 << 20;
constexpr int kDepth = 64;

class Copies {
 public:
  explicit Copies(std::string path) : path_(std::move(path)) {}
  ~Copies() {
    if (made_) io_uring_queue_exit(&ring_);
    if (descriptor_ >= 0) close(descriptor_);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  absl::Status Open() {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
    if (descriptor_ < 0) descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
    struct stat info = {};
    if (descriptor_ < 0 || fstat(descriptor_, &info) != 0) {
      return PosixError(path_, "cannot open", errno);
    }
    requests_ = info.st_size / kRequest;
    if (requests_ == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has ", info.st_size, " bytes; it must have ", kRequest));
    }
    memory_ = AllocateAligned(kDepth * kRequest);
    if (memory_ == nullptr) return absl::ResourceExhaustedError("no memory for requests");
    const int result = io_uring_queue_init(kDepth, &ring_, 0);
    if (result < 0) {
      return absl::UnimplementedError(PosixError("io_uring", "no ring", -result).message());
    }
    made_ = true;
    return absl::OkStatus();
  }

  // Request i reads; what it read is written if that keeps the ratio.
  absl::StatusOr<double> Run(int64_t reads, int64_t writes) {
    const int64_t n = (reads + kRequest - 1) / kRequest;
    const int64_t written = writes / kRequest;
    const double start = Now();
    absl::Status status;
    int64_t next = 0;
    int64_t moved = 0;
    std::vector<int> idle;
    for (int i = kDepth - 1; i >= 0; --i) idle.push_back(i);
    while (static_cast<int>(idle.size()) < kDepth || (next < n && status.ok())) {
      for (; !idle.empty() && next < n && status.ok(); ++next) {
        Slot& slot = slots_[idle.back()];
        slot = {next % requests_ * kRequest, false, (next + 1) * written / n > next * written / n};
        Prepare(idle.back());
        idle.pop_back();
      }
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && result != -EINTR) {
        // What the kernel has taken may still write to the memory.
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return PosixError(path_, "io_uring", -result);
      }
      io_uring_cqe* entry = nullptr;
      while (io_uring_peek_cqe(&ring_, &entry) == 0) {
        const int done = entry->res;
        const auto s = static_cast<int>(io_uring_cqe_get_data64(entry));
        io_uring_cqe_seen(&ring_, entry);
        if (done < 0) status.Update(PosixError(path_, "a request", -done));
        if (done >= 0 && done != kRequest) {
          status.Update(absl::DataLossError(
              absl::StrCat(path_, ": a request of ", kRequest, " bytes moved ", done)));
        }
        moved += kRequest;
        if (status.ok() && slots_[s].writes_next) {
          slots_[s].writes = true;
          slots_[s].writes_next = false;
          Prepare(s);
        } else {
          idle.push_back(s);
        }
      }
    }
    ZERO_RETURN_IF_ERROR(status);
    return static_cast<double>(moved) / (Now() - start);
  }

 private:
  struct Slot {
    int64_t offset = 0;
    bool writes = false;
    bool writes_next = false;
  };
  void Prepare(int s) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // there are as many as slots
    char* const memory = memory_.get() + s * kRequest;
    const auto at = static_cast<uint64_t>(slots_[s].offset);
    if (slots_[s].writes) {
      io_uring_prep_write(entry, descriptor_, memory, kRequest, at);
    } else {
      io_uring_prep_read(entry, descriptor_, memory, kRequest, at);
    }
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(s));
  }

  const std::string path_;
  int descriptor_ = -1;
  int64_t requests_ = 0;  // of the file
  AlignedBytes memory_;
  io_uring ring_ = {};
  bool made_ = false;
  Slot slots_[kDepth];
};

}  // namespace

absl::StatusOr<double> CopyInPlace(const std::string& path, int64_t reads, int64_t writes) {
  Copies copies(path);
  ZERO_RETURN_IF_ERROR(copies.Open());
  return copies.Run(reads, writes);
}

}  // namespace zero::bench
