// Device memory with an owner.
#pragma once

#include <cstdint>

#include "device/memory.h"

namespace zero {

class Device;

// Move-only. Made by Device::Allocate and AllocateHost (owned) or Device::Adopt (the trainer's
// memory, only accounted). The device must outlive it. Destroy it only when the streams that use it
// have been synchronised: nothing here waits.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(static_cast<Buffer&&>(other));
    Swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  char* bytes_at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t bytes() const { return bytes_; }
  MemoryCategory category() const { return category_; }
  bool owned() const { return origin_ != Origin::kAdopted; }

 private:
  friend class Device;
  enum class Origin : uint8_t { kDevice, kHost, kAdopted };
  Buffer(Device* device, void* data, int64_t bytes, MemoryCategory category, Origin origin)
      : device_(device), data_(data), bytes_(bytes), category_(category), origin_(origin) {}
  void Swap(Buffer& other) noexcept;

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  MemoryCategory category_ = MemoryCategory::kOther;
  Origin origin_ = Origin::kAdopted;
};

}  // namespace zero
