#include "bench/disk_speed.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/aligned_bytes.h"
#include "io/disk_file.h"
#include "io/folder.h"
#include "io/posix_file.h"

namespace zero::bench {
namespace {

constexpr int64_t kRequest = 1 << 20;
constexpr int kDepth = 32;

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One thread's requests.
class Mover {
 public:
  static absl::StatusOr<std::unique_ptr<Mover>> Create() {
    auto mover = std::unique_ptr<Mover>(new Mover);
    mover->memory_ = AllocateAligned(kDepth * kRequest);
    if (mover->memory_ == nullptr) return absl::ResourceExhaustedError("no memory for requests");
    // Not all the same: some disks have a short way for that.
    char* const bytes = mover->memory_.get();
    for (int64_t i = 0; i < kRequest; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
    for (int i = 1; i < kDepth; ++i) std::memcpy(bytes + i * kRequest, bytes, kRequest);
    const int result = io_uring_queue_init(kDepth, &mover->ring_, 0);
    if (result < 0)
      return absl::UnimplementedError(PosixError("io_uring", "no ring", -result).message());
    mover->made_ = true;
    return mover;
  }
  ~Mover() {
    if (made_) io_uring_queue_exit(&ring_);
  }

  // All requests of [begin, end). After an error none is under way.
  absl::Status Move(const DiskFile& file, bool writes, int64_t begin, int64_t end) {
    absl::Status status;
    for (int64_t next = begin; flying_ > 0 || (next < end && status.ok());) {
      for (; flying_ < kDepth && next < end && status.ok(); next += kRequest) {
        Prepare(file, writes, next, memory_.get() + (next / kRequest) % kDepth * kRequest);
      }
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && result != -EINTR) {
        status.Update(PosixError(file.path(), "io_uring", -result));
        flying_ -= static_cast<int>(io_uring_sq_ready(&ring_));  // which the kernel never sees
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      Reap(file, status);
    }
    return status;
  }

 private:
  Mover() = default;
  void Prepare(const DiskFile& file, bool writes, int64_t offset, char* memory) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    const auto at = static_cast<uint64_t>(offset);
    if (writes) {
      io_uring_prep_write(entry, file.descriptor(), memory, kRequest, at);
    } else {
      io_uring_prep_read(entry, file.descriptor(), memory, kRequest, at);
    }
    ++flying_;
  }
  void Reap(const DiskFile& file, absl::Status& status) {
    io_uring_cqe* entry = nullptr;
    for (; io_uring_peek_cqe(&ring_, &entry) == 0; --flying_) {
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (result < 0) {
        status.Update(PosixError(file.path(), "a request", -result));
      } else if (result != kRequest) {
        status.Update(absl::DataLossError(
            absl::StrCat(file.path(), ": a request of ", kRequest, " bytes moved ", result)));
      }
    }
  }

  AlignedBytes memory_;
  io_uring ring_ = {};
  bool made_ = false;
  int flying_ = 0;
};

// Bytes a second of one pass over the file.
absl::StatusOr<double> Alone(Mover& mover, const DiskFile& file, bool writes) {
  const Clock::time_point start = Clock::now();
  ZERO_RETURN_IF_ERROR(mover.Move(file, writes, 0, file.size()));
  return static_cast<double>(file.size()) / Since(start);
}

// Goes over a half of the file, again and again, until both threads have done so once.
absl::StatusOr<double> Beside(Mover& mover, const DiskFile& file, bool writes,
                              std::atomic<int>& unfinished) {
  const int64_t half = file.size() / 2;
  const int64_t begin = writes ? half : 0;
  const Clock::time_point start = Clock::now();
  int64_t moved = 0;
  // In parts, so that the faster one soon sees that the other one is through.
  while (moved < half || unfinished > 0) {
    const int64_t at = moved % half;
    const int64_t part = std::min(half - at, 2 * kDepth * kRequest);
    const absl::Status status = mover.Move(file, writes, begin + at, begin + at + part);
    if (!status.ok()) {
      unfinished = 0;
      return status;
    }
    moved += part;
    if (moved == half) --unfinished;
  }
  return static_cast<double>(moved) / Since(start);
}

absl::StatusOr<DiskSpeed> Measure(const DiskFile& file) {
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Mover> reader, Mover::Create());
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Mover> writer, Mover::Create());
  DiskSpeed speed;
  speed.note = file.note();
  ZERO_RETURN_IF_ERROR(writer->Move(file, /*writes=*/true, 0, file.size()));
  ZERO_ASSIGN_OR_RETURN(speed.write, Alone(*writer, file, /*writes=*/true));
  ZERO_ASSIGN_OR_RETURN(speed.read, Alone(*reader, file, /*writes=*/false));
  std::atomic<int> unfinished{2};
  absl::StatusOr<double> written = 0.0;
  std::thread other([&] { written = Beside(*writer, file, /*writes=*/true, unfinished); });
  const absl::StatusOr<double> read = Beside(*reader, file, /*writes=*/false, unfinished);
  other.join();
  ZERO_ASSIGN_OR_RETURN(speed.read_beside_write, read);
  ZERO_ASSIGN_OR_RETURN(speed.write_beside_read, written);
  return speed;
}

}  // namespace

absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, int64_t bytes) {
  if (bytes <= 0 || bytes % (2 * kRequest) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "measuring a disk with ", bytes, " bytes; it must be a multiple of ", 2 * kRequest));
  }
  const std::string path = absl::StrCat(folder, "/zero-bench.", RandomDigits());
  ZERO_ASSIGN_OR_RETURN(const DiskFile file, DiskFile::Create(path, bytes));
  absl::StatusOr<DiskSpeed> speed = Measure(file);
  unlink(path.c_str());
  return speed;
}

}  // namespace zero::bench
