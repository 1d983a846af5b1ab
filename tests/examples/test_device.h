// The device that the model's tests run on. Each program of the suite links one implementation of
// NewTestDevice, TestSession and the variants.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/thread_pool.h"
#include "tests/catch.h"

namespace zero::llama {

// `pool` is for a device that is the host.
std::unique_ptr<Device> NewTestDevice(ThreadPool* pool);

// Ways to do products that must agree to rounding, for the whole process while it is selected; the
// first is the ordinary one.
std::vector<std::string> ProductVariants();
void SelectProductVariant(const std::string& name);

// Selects a variant until the end of its scope.
struct WithProducts {
  explicit WithProducts(const std::string& name) { SelectProductVariant(name); }
  ~WithProducts() { SelectProductVariant(ProductVariants().front()); }
};

// What the devices of a test case stand on, made before the first of them and checked behind the
// last.
class TestSession {
 public:
  TestSession();
  ~TestSession();
};

// Shared by everything that is on a device, with a device and a stream to fill and read it.
class Session {
 public:
  static std::shared_ptr<Session> Get() {
    static std::weak_ptr<Session> current;
    std::shared_ptr<Session> session = current.lock();
    if (session == nullptr) {
      session = std::make_shared<Session>();
      current = session;
    }
    return session;
  }
  Session() : device_(NewTestDevice(nullptr)) {
    auto stream = device_->CreateStream("copies of a test");
    REQUIRE_OK(stream.status());
    stream_ = *std::move(stream);
  }
  Device& device() { return *device_; }
  // Copies and waits.
  void Copy(void* to, const void* from, int64_t bytes) {
    REQUIRE_OK(device_->Copy(*stream_, to, from, bytes));
    REQUIRE_OK(stream_->Synchronize());
  }

 private:
  TestSession base_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace zero::llama
