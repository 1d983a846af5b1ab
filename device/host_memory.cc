#include "device/host_memory.h"

#include <unistd.h>

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

absl::Status CheckPhysicalMemory(int64_t bytes) {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  // Systems that do not say have no limit here.
  if (pages <= 0 || page_bytes <= 0 || bytes <= pages * page_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this machine has ", pages * page_bytes, " bytes of memory in all"));
}

absl::StatusOr<void*> AllocateMemory(int64_t bytes) {
  ZERO_RETURN_IF_ERROR(CheckPhysicalMemory(bytes));
  void* data = ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
  if (data == nullptr) return absl::ResourceExhaustedError("the system has no memory left");
  if (kPoison) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
  return data;
}

void FreeMemory(void* data, int64_t bytes) {
  if (kPoison) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
  ::operator delete(data, kAlignment);
}

}  // namespace zero
