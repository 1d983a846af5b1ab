#include "device/handover.h"

#include "device/status.h"

namespace zero {

absl::Status Handover::Mark(Use& use, const Stream& stream) {
  if (use.event == nullptr) {
    ZERO_ASSIGN_OR_RETURN(use.event, device_->CreateEvent());
  }
  use.stream_id = stream.id();
  use.pending = true;
  return use.event->Record(stream);
}

absl::Status Handover::WaitFor(const Use& use, const Stream& stream) const {
  // A stream is in order with itself.
  if (!use.pending || use.stream_id == stream.id()) return absl::OkStatus();
  return stream.Wait(*use.event);
}

absl::Status Handover::BeginRead(const Stream& stream) { return WaitFor(write_, stream); }

absl::Status Handover::EndRead(const Stream& stream) {
  Use* spare = nullptr;
  for (Use& read : reads_) {
    if (read.stream_id == stream.id()) return Mark(read, stream);
    if (!read.pending) spare = &read;
  }
  return Mark(spare != nullptr ? *spare : reads_.emplace_back(), stream);
}

absl::Status Handover::BeginWrite(const Stream& stream) {
  ZERO_RETURN_IF_ERROR(WaitFor(write_, stream));
  for (Use& read : reads_) {
    ZERO_RETURN_IF_ERROR(WaitFor(read, stream));
    read.pending = false;
  }
  return absl::OkStatus();
}

absl::Status Handover::EndWrite(const Stream& stream) { return Mark(write_, stream); }

}  // namespace zero
