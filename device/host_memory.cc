#include "device/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"
#include "device/control_group.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Below it the system is not asked.
constexpr int64_t kAlwaysThere = int64_t{64} << 20;

std::mutex mutex;
int64_t reserved = 0;  // guarded by it

// The number in a file that holds nothing else; `otherwise` for "max", and where there is no file.
int64_t NumberIn(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

// Of /proc/meminfo, in bytes; negative if there is none.
int64_t AvailableBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key;
  int64_t kibibytes = 0;
  std::string unit;
  while (file >> key >> kibibytes && std::getline(file, unit)) {
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return -1;
}

int64_t TouchedBytes(const std::string& root) {
  std::ifstream file(root + "/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * sysconf(_SC_PAGE_SIZE);
}

int64_t GroupLimit(const std::string& root) {
  int64_t limit = kNoLimit;
  for (const std::string& folder : ControlGroupFolders(root, "memory")) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
      limit = std::min(limit, NumberIn(folder + file, kNoLimit));
    }
  }
  return limit;
}

// With the mutex held.
absl::Status Check(int64_t bytes) {
  if (bytes <= kAlwaysThere - reserved) return absl::OkStatus();
  const int64_t limit = HostMemoryLimit();
  if (bytes <= limit - reserved) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("this process can have ", limit,
                                                   " bytes of this machine's memory in all, and ",
                                                   reserved, " are allocated already"));
}

absl::Status Reserve(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  ZERO_RETURN_IF_ERROR(Check(bytes));
  reserved += bytes;
  return absl::OkStatus();
}

void Return(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  reserved -= bytes;
}

// Of a page or more, whole pages: disks read into them without a copy.
std::align_val_t AlignmentOf(int64_t bytes) { return std::align_val_t(bytes < kPage ? 64 : kPage); }

}  // namespace

int64_t HostMemoryLimit(const std::string& root) {
  const int64_t available = AvailableBytes(root);
  const int64_t machine = available < 0 ? kNoLimit : available + TouchedBytes(root);
  return std::min(machine, GroupLimit(root));
}

absl::Status CheckHostMemory(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  return Check(bytes);
}

absl::StatusOr<void*> AllocateMemory(int64_t bytes) {
  ZERO_RETURN_IF_ERROR(Reserve(bytes));
  void* data = ::operator new(static_cast<size_t>(bytes), AlignmentOf(bytes), std::nothrow);
  if (data == nullptr) {
    Return(bytes);
    return absl::ResourceExhaustedError("the system has no memory left");
  }
  if (kPoison) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
  return data;
}

void FreeMemory(void* data, int64_t bytes) {
  if (kPoison) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
  ::operator delete(data, AlignmentOf(bytes));
  Return(bytes);
}

}  // namespace zero
