// Collectives of ranks as threads whose streams belong to GPUs, or to any other device.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/local_call.h"
#include "device/device.h"

namespace zero {

// The threads that drive the ranks meet on the host, once a call: the last to come enqueues the
// whole call on the streams of all, while the others wait and leave their streams to it.
// So a call is enqueued on every stream, or an error is returned on every rank: a failed group lets
// no stream go on with memory that was not filled.
//
// On the streams a call is: meet, copy from the others, meet. A meeting is an event from each
// stream to the first and one back. The events are of one call: kept longer, they would outlive the
// devices of ranks that end before the group does.
class LocalDeviceCalls {
 public:
  struct Group {
    int size = 0;
    absl::Duration deadline;
    std::function<absl::Status()> health;           // takes no lock of the caller
    std::function<void(const absl::Status&)> fail;  // any thread; the first reason stays
  };
  explicit LocalDeviceCalls(Group group);

  // Blocks until all ranks have come, polling with Device::Yield. kInvalidArgument naming two ranks
  // that disagree, kDeadlineExceeded naming the ranks that did not come, or the group's failure.
  absl::Status Run(int rank, const Stream& stream, Arrival arrival);

 private:
  struct Seat {  // one rank's
    const Stream* stream = nullptr;
    Arrival arrival;
    // Its stream has come to a meeting; on the first rank's, all have.
    std::unique_ptr<Event> here;
  };

  absl::Status Sit(int rank, const Stream& stream, Arrival arrival);
  void Rise(int rank);
  absl::Status AwaitOthers(int rank, int64_t round, const Stream& stream);
  absl::Status Missing(int rank) const;
  void EnqueueRound(std::unique_lock<std::mutex>& lock);
  absl::Status EnqueueAll();
  absl::Status MakeEvents();
  absl::Status MeetOnStreams();
  absl::Status CopyToRank(int rank);

  const Group group_;
  std::mutex mutex_;
  std::vector<Seat> seats_;
  int seated_ = 0;
  int64_t round_ = 0;    // rounds that have been enqueued, or have failed halfway
  absl::Status result_;  // of the last round
};

}  // namespace zero
