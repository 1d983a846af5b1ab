#include "collectives/calls_in_flight.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {

absl::StatusOr<std::unique_ptr<CallsInFlight::Call>> CallsInFlight::Begin(const Stream& stream,
                                                                          std::string what,
                                                                          absl::Duration limit) {
  std::unique_ptr<Call> call;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) DropEnded();
    if (!spare_.empty()) {
      call = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (call == nullptr) {
    call = std::make_unique<Call>();
    ZERO_ASSIGN_OR_RETURN(call->before, device_->CreateEvent());
    ZERO_ASSIGN_OR_RETURN(call->after, device_->CreateEvent());
  }
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

void CallsInFlight::DropEnded() {
  while (!calls_.empty() && calls_.front()->after->Reached()) {
    spare_.push_back(std::move(calls_.front()));
    calls_.pop_front();
  }
}

absl::Status CallsInFlight::Watch() {
  std::lock_guard<std::mutex> lock(mutex_);
  DropEnded();
  if (calls_.empty()) return absl::OkStatus();
  Call& oldest = *calls_.front();
  const auto now = std::chrono::steady_clock::now();
  if (!oldest.running) {
    oldest.running = oldest.before->Reached();
    oldest.since = now;
    return absl::OkStatus();
  }
  if (absl::FromChrono(now - oldest.since) < oldest.limit) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(oldest.what, " did not end within ", absl::FormatDuration(oldest.limit),
                   ": another rank did not call it, or cannot be reached"));
}

std::string CallsInFlight::Oldest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_.empty() ? "" : calls_.front()->what;
}

}  // namespace zero
