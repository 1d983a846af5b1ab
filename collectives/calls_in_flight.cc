#include "collectives/calls_in_flight.h"

#include <utility>

#include "device/status.h"

namespace zero {

int64_t CallsInFlight::Count(const std::string& what) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_ = what;
  return called_++;
}

void CallsInFlight::BeginOnHost(std::string what) { (void)Count(what); }

void CallsInFlight::EndOnHost() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++ended_;
}

absl::StatusOr<std::unique_ptr<CallsInFlight::Call>> CallsInFlight::Begin(const Stream& stream,
                                                                          std::string what,
                                                                          absl::Duration limit) {
  const int64_t index = Count(what);
  std::unique_ptr<Call> call = TakeSpare();
  if (call == nullptr) {
    std::lock_guard<std::mutex> lock(looking_);
    DropEnded();
    call = TakeSpare();
  }
  if (call == nullptr) {
    call = std::make_unique<Call>();
    ZERO_ASSIGN_OR_RETURN(call->before, device_->CreateEvent());
    ZERO_ASSIGN_OR_RETURN(call->after, device_->CreateEvent());
  }
  call->index = index;
  call->what = std::move(what);
  call->limit = limit;
  call->running = false;
  ZERO_RETURN_IF_ERROR(call->before->Record(stream));
  return call;
}

absl::Status CallsInFlight::End(const Stream& stream, std::unique_ptr<Call> call) {
  ZERO_RETURN_IF_ERROR(call->after->Record(stream));
  std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back(std::move(call));
  return absl::OkStatus();
}

std::unique_ptr<CallsInFlight::Call> CallsInFlight::TakeSpare() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.empty()) return nullptr;
  std::unique_ptr<Call> call = std::move(spare_.back());
  spare_.pop_back();
  return call;
}

CallsInFlight::Call* CallsInFlight::Front() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_.empty() ? nullptr : calls_.front().get();
}

void CallsInFlight::DropEnded() {
  for (Call* oldest = Front(); oldest != nullptr; oldest = Front()) {
    if (!oldest->after->Reached()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    spare_.push_back(std::move(calls_.front()));
    calls_.pop_front();
    ++ended_;
  }
}

std::optional<LateCall> CallsInFlight::Watch() {
  std::lock_guard<std::mutex> looking(looking_);
  DropEnded();
  Call* const oldest = Front();
  if (oldest == nullptr) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (!oldest->running) {  // changed by this thread only
    const bool running = oldest->before->Reached();
    std::lock_guard<std::mutex> lock(mutex_);
    oldest->running = running;
    oldest->since = now;
    return std::nullopt;
  }
  if (absl::FromChrono(now - oldest->since) < oldest->limit) return std::nullopt;
  return LateCall{oldest->index, oldest->what, oldest->limit, true};
}

std::string CallsInFlight::Oldest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_.empty() ? "" : calls_.front()->what;
}

Standing CallsInFlight::standing() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Standing standing{called_, ended_, last_, ""};
  if (!calls_.empty() && calls_.front()->running) {
    ++standing.begun;
    standing.running = calls_.front()->what;
  }
  return standing;
}

LateCall CallsInFlight::Newest(absl::Duration limit) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return LateCall{called_ - 1, last_, limit, false};
}

}  // namespace zero
