#include "device/buffer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"

namespace zero {

Buffer::~Buffer() {
  if (device_ == nullptr) return;
  if (owned_) {
    device_->Free(data_, bytes_);
    device_->ledger_.Remove(category_, bytes_);
  } else {
    device_->ledger_.RemoveAdopted(category_, bytes_);
  }
}

void Buffer::Swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(category_, other.category_);
  std::swap(owned_, other.owned_);
}

absl::StatusOr<Buffer> Device::Allocate(int64_t bytes, MemoryCategory category,
                                        const std::string& what) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", bytes, " bytes requested"));
  }
  if (bytes == 0) return Buffer();
  if (!ledger_.Reserve(bytes, capacity_)) {
    const std::string capacity = capacity_ < 0 ? "not limited" : absl::StrCat(capacity_);
    return absl::ResourceExhaustedError(absl::StrCat(
        what, ": ", bytes, " bytes of ", Name(category), " do not fit: capacity ", capacity,
        ", in use ", ledger_.owned_bytes(), ": ", Describe(ledger_.table())));
  }
  absl::StatusOr<void*> data = AllocateBytes(bytes);
  if (!data.ok()) {
    ledger_.CancelReserved(bytes);
    return absl::Status(
        data.status().code(),
        absl::StrCat(what, ": ", bytes, " bytes of ", Name(category), ": ", data.status().message(),
                     "; in use: ", Describe(ledger_.table())));
  }
  ledger_.AddReserved(category, bytes);
  return Buffer(this, *data, bytes, category, true);
}

Buffer Device::Adopt(void* data, int64_t bytes, MemoryCategory category) {
  if (data == nullptr || bytes <= 0) return Buffer();
  ledger_.AddAdopted(category, bytes);
  return Buffer(this, data, bytes, category, false);
}

}  // namespace zero
