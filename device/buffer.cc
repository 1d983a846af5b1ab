#include "device/buffer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "device/status.h"

namespace zero {

Buffer::~Buffer() {
  if (device_ == nullptr) return;
  switch (origin_) {
    case Origin::kDevice:
      device_->Free(data_, bytes_);
      device_->ledger_.Remove(category_, bytes_);
      return;
    case Origin::kHost:
      device_->host_ranges_.Remove(data_);  // before somebody else gets the address
      device_->FreeHost(data_, bytes_);
      device_->ledger_.RemoveHost(category_, bytes_);
      return;
    case Origin::kAdopted:
      device_->ledger_.RemoveAdopted(category_, bytes_);
      return;
  }
}

void Buffer::Swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(category_, other.category_);
  std::swap(origin_, other.origin_);
}

namespace {

absl::Status CheckRequest(int64_t bytes, const std::string& what) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", bytes, " bytes requested"));
}

}  // namespace

absl::Status Device::Refused(const absl::Status& reason, int64_t bytes, MemoryCategory category,
                             const std::string& what) const {
  return absl::Status(reason.code(),
                      absl::StrCat(what, ": ", bytes, " bytes of ", Name(category), ": ",
                                   reason.message(), "; in use: ", Describe(ledger_.table())));
}

absl::Status Device::DoesNotFit(int64_t bytes, MemoryCategory category, const std::string& what,
                                const char* limit, int64_t capacity, int64_t in_use) const {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": ", bytes, " bytes of ", Name(category), " do not fit: ", limit, " ",
                   capacity < 0 ? "not limited" : absl::StrCat(capacity), ", in use ", in_use, ": ",
                   Describe(ledger_.table())));
}

absl::StatusOr<Buffer> Device::Allocate(int64_t bytes, MemoryCategory category,
                                        const std::string& what) {
  ZERO_RETURN_IF_ERROR(CheckRequest(bytes, what));
  if (bytes == 0) return Buffer();
  if (!ledger_.Reserve(bytes, capacity_)) {
    return DoesNotFit(bytes, category, what, "capacity", capacity_, ledger_.owned_bytes());
  }
  absl::StatusOr<void*> data = AllocateBytes(bytes);
  if (!data.ok()) {
    ledger_.CancelReserved(bytes);
    return Refused(data.status(), bytes, category, what);
  }
  ledger_.AddReserved(category, bytes);
  return Buffer(this, *data, bytes, category, Buffer::Origin::kDevice);
}

absl::StatusOr<Buffer> Device::AllocateHost(int64_t bytes, MemoryCategory category,
                                            const std::string& what, HostMemory memory) {
  ZERO_RETURN_IF_ERROR(CheckRequest(bytes, what));
  if (bytes == 0) return Buffer();
  if (!ledger_.ReserveHost(category, bytes, host_capacity_)) {
    return DoesNotFit(bytes, category, what, "host capacity", host_capacity_,
                      ledger_.offloaded_bytes());
  }
  absl::StatusOr<void*> data = AllocateHostBytes(bytes, memory);
  if (!data.ok()) {
    ledger_.CancelReservedHost(category, bytes);
    return Refused(data.status(), bytes, category, what);
  }
  ledger_.AddReserved(category, bytes);
  host_ranges_.Add(*data, bytes);
  return Buffer(this, *data, bytes, category, Buffer::Origin::kHost);
}

Buffer Device::Adopt(void* data, int64_t bytes, MemoryCategory category) {
  if (data == nullptr || bytes <= 0) return Buffer();
  ledger_.AddAdopted(category, bytes);
  return Buffer(this, data, bytes, category, Buffer::Origin::kAdopted);
}

Device::Way Device::WayOf(const void* to, const void* from) const {
  const bool to_host = host_ranges_.Contain(to);
  const bool from_host = host_ranges_.Contain(from);
  if (to_host == from_host) return Way::kNone;
  return to_host ? Way::kFromDevice : Way::kToDevice;
}

void Device::CountCopy(Way way, int64_t bytes) {
  if (way == Way::kToDevice) bytes_to_device_.fetch_add(bytes, std::memory_order_relaxed);
  if (way == Way::kFromDevice) bytes_from_device_.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace zero
