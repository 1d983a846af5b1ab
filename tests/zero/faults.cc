#include "tests/zero/faults.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/host_stream.h"
#include "device/status.h"

namespace zero::test {
namespace {

HostDevice::Options WithHook(FaultCounter* counter) {
  HostDevice::Options options;
  options.hook = [counter](const std::string& stream, const char* operation) {
    return counter->Count(FaultKind::kOperation, absl::StrCat(stream, ": ", operation));
  };
  return options;
}

class FaultyStream : public HostStream {
 public:
  FaultyStream(Device* device, const std::string& name, Scheduler* scheduler,
               std::atomic<int64_t>* host_waits, FaultCounter* counter)
      : HostStream(device, name, scheduler->CreateQueue(name, WithHook(counter).hook), scheduler,
                   host_waits),
        counter_(counter) {}

  absl::Status Enqueue(Operation operation) const override {
    ZERO_RETURN_IF_ERROR(
        counter_->Count(FaultKind::kCall, absl::StrCat("enqueue ", operation.name)));
    return HostStream::Enqueue(std::move(operation));
  }

 private:
  FaultCounter* const counter_;
};

}  // namespace

void FaultCounter::Arm(FaultKind kind, int64_t n, absl::StatusCode code) {
  std::lock_guard<std::mutex> lock(mutex_);
  armed_ = true;
  fired_ = false;
  kind_ = kind;
  left_ = n;
  code_ = code;
}

void FaultCounter::Disarm() {
  std::lock_guard<std::mutex> lock(mutex_);
  armed_ = false;
}

bool FaultCounter::fired() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return fired_;
}

std::string FaultCounter::what() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return what_;
}

absl::Status FaultCounter::Count(FaultKind kind, const std::string& what) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!armed_ || kind != kind_ || left_-- > 0) return absl::OkStatus();
  armed_ = false;
  fired_ = true;
  what_ = what;
  return absl::Status(code_, absl::StrCat("injected failure of ", what));
}

FaultyDevice::FaultyDevice(FaultCounter* counter)
    : HostDevice(WithHook(counter)), counter_(counter) {}

absl::StatusOr<std::unique_ptr<Stream>> FaultyDevice::CreateStream(const std::string& name) {
  ZERO_RETURN_IF_ERROR(counter_->Count(FaultKind::kCall, "create stream"));
  return std::make_unique<FaultyStream>(this, name, &scheduler_, &host_waits_, counter_);
}

absl::StatusOr<std::unique_ptr<Event>> FaultyDevice::CreateEvent() {
  ZERO_RETURN_IF_ERROR(counter_->Count(FaultKind::kCall, "create event"));
  return std::make_unique<HostEvent>(&scheduler_, &host_waits_);
}

absl::StatusOr<void*> FaultyDevice::AllocateBytes(int64_t bytes) {
  ZERO_RETURN_IF_ERROR(counter_->Count(FaultKind::kCall, "allocate"));
  return HostDevice::AllocateBytes(bytes);
}

absl::Status FaultyGroup::AllToAll(const Stream& stream, const char* name,
                                   absl::Span<const AllToAllPiece> pieces) {
  ZERO_RETURN_IF_ERROR(counter_->Count(FaultKind::kCollective, name));
  return group_->AllToAll(stream, name, pieces);
}

absl::Status FaultyGroup::AllGather(const Stream& stream, const char* name,
                                    absl::Span<const AllGatherPiece> pieces) {
  ZERO_RETURN_IF_ERROR(counter_->Count(FaultKind::kCollective, name));
  return group_->AllGather(stream, name, pieces);
}

absl::Status FaultyGroup::Barrier(const Stream& stream, const char* name) {
  ZERO_RETURN_IF_ERROR(counter_->Count(FaultKind::kCollective, name));
  return group_->Barrier(stream, name);
}

}  // namespace zero::test
