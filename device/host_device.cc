#include "device/host_device.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/host_memory.h"
#include "device/host_stream.h"
#include "device/status.h"

namespace zero {
namespace {

// Large enough to keep a memory channel busy, small enough to share out.
constexpr int64_t kCopyGrain = 1 << 20;

absl::Status CheckSize(const char* operation, int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, " of ", bytes, " bytes"));
}

HostDevice::Options WithScheduler(HostDevice::Options options) {
  if (options.scheduler == nullptr) options.scheduler = std::make_shared<ThreadScheduler>();
  return options;
}

}  // namespace

HostDevice::HostDevice(Options options)
    : options_(WithScheduler(std::move(options))),
      to_device_(options_.link.to_device),
      from_device_(options_.link.from_device) {
  set_capacity(options_.capacity);
}

absl::StatusOr<std::unique_ptr<Stream>> HostDevice::CreateStream(const std::string& name) {
  ZERO_ASSIGN_OR_RETURN(auto queue, NewQueue(options_.scheduler.get(), name, options_.hook));
  return std::make_unique<HostStream>(this, name, std::move(queue), options_.scheduler.get(),
                                      &host_waits_);
}

absl::StatusOr<std::unique_ptr<Event>> HostDevice::CreateEvent() {
  return std::make_unique<HostEvent>(options_.scheduler.get(), &host_waits_);
}

HostLink* HostDevice::LinkFor(Way way) {
  if (way == Way::kToDevice && to_device_.limited()) return &to_device_;
  if (way == Way::kFromDevice && from_device_.limited()) return &from_device_;
  return nullptr;
}

absl::Status HostDevice::Copy(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return CheckSize("copy", bytes);
  const Way way = WayOf(to, from);
  HostLink* link = LinkFor(way);
  Operation copy;
  copy.name = "copy";
  if (link != nullptr) {
    copy.cost_us = std::chrono::duration<double, std::micro>(link->Duration(bytes)).count();
    if (options_.scheduler->virtual_time()) link = nullptr;
  }
  copy.run = [pool = options_.pool, link, to, from, bytes] {
    const auto through = link == nullptr ? HostLink::Clock::time_point() : link->Take(bytes);
    ParallelFor(pool, bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                  static_cast<size_t>(end - begin));
    });
    if (link != nullptr) HostLink::WaitUntil(through);
    return absl::OkStatus();
  };
  ZERO_RETURN_IF_ERROR(stream.Enqueue(std::move(copy)));
  CountCopy(way, bytes);
  return absl::OkStatus();
}

absl::Status HostDevice::Fill(const Stream& stream, void* to, uint8_t value, int64_t bytes) {
  if (bytes <= 0) return CheckSize("fill", bytes);
  return stream.Enqueue("fill", [pool = options_.pool, to, value, bytes] {
    ParallelFor(pool, bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(to) + begin, value, static_cast<size_t>(end - begin));
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<void*> HostDevice::AllocateBytes(int64_t bytes) { return AllocateMemory(bytes); }

void HostDevice::Free(void* data, int64_t bytes) { FreeMemory(data, bytes); }

ThreadPool* HostPool(const Stream& stream) {
  return static_cast<const HostDevice&>(stream.device()).pool();
}

void ParallelFor(ThreadPool* pool, int64_t n, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (pool == nullptr) {
    if (n > 0) body(0, n);
    return;
  }
  pool->ParallelFor(n, grain, body);
}

}  // namespace zero
