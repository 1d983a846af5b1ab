// Which stream may touch a region of memory when: the one way that memory changes streams here.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "device/device.h"

namespace zero {

// Orders the uses of one region over streams, like a readers-writer lock that never blocks the
// host: a read starts after the last write, a write after the last write and every read since.
// Each use is a Begin on the stream, the work, and an End on the same stream, or on one that the
// caller made wait for the work. Events are made the first time that a stream uses the region, and
// reused. One thread at a time. Moved from, it is as new.
class Handover {
 public:
  explicit Handover(Device* device) : device_(device) {}
  Handover(Handover&&) noexcept = default;
  Handover& operator=(Handover&&) noexcept = default;

  absl::Status BeginRead(const Stream& stream);
  absl::Status EndRead(const Stream& stream);
  absl::Status BeginWrite(const Stream& stream);
  absl::Status EndWrite(const Stream& stream);

  // Begin, enqueue, End. The End is recorded even if `enqueue` fails halfway.
  template <class F>
  absl::Status Read(const Stream& stream, F&& enqueue) {
    absl::Status begun = BeginRead(stream);
    if (!begun.ok()) return begun;
    absl::Status used = std::forward<F>(enqueue)();
    absl::Status ended = EndRead(stream);
    return used.ok() ? ended : used;
  }
  template <class F>
  absl::Status Write(const Stream& stream, F&& enqueue) {
    absl::Status begun = BeginWrite(stream);
    if (!begun.ok()) return begun;
    absl::Status used = std::forward<F>(enqueue)();
    absl::Status ended = EndWrite(stream);
    return used.ok() ? ended : used;
  }

 private:
  struct Use {
    uint64_t stream_id = 0;
    std::unique_ptr<Event> event;
    bool pending = false;         // no later write that waited for it has ended
    bool seen_by_writer = false;  // the write that has begun waited for it
  };
  absl::Status Mark(Use& use, const Stream& stream);
  absl::Status WaitFor(const Use& use, const Stream& stream) const;

  Device* device_;
  Use write_;
  std::vector<Use> reads_;  // one for each stream that read since the last write, and spare ones
};

}  // namespace zero
