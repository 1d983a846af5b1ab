#include "device/handover.h"

#include "device/status.h"

namespace zero {

absl::Status Handover::Mark(Use& use, const Stream& stream) {
  if (use.event == nullptr) {
    ZERO_ASSIGN_OR_RETURN(use.event, device_->CreateEvent());
  }
  use.stream_id = stream.id();
  use.pending = true;
  use.seen_by_writer = false;
  return use.event->Record(stream);
}

absl::Status Handover::WaitFor(const Use& use, const Stream& stream) const {
  // A stream is in order with itself.
  if (!use.pending || use.event == nullptr || use.stream_id == stream.id()) {
    return absl::OkStatus();
  }
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
    read.seen_by_writer = true;
  }
  return absl::OkStatus();
}

absl::Status Handover::EndWrite(const Stream& stream) {
  // From now on the end of this write stands for the reads that it waited for. Not earlier: a write
  // that is begun and given up leaves them to the next.
  for (Use& read : reads_) {
    if (read.seen_by_writer) read.pending = false;
  }
  return Mark(write_, stream);
}

}  // namespace zero
