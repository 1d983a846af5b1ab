#include "collectives/local_device_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"

namespace zero {

LocalDeviceCalls::LocalDeviceCalls(Group group)
    : group_(std::move(group)), seats_(static_cast<size_t>(group_.size)) {}

absl::Status LocalDeviceCalls::Run(int rank, const Stream& stream, Arrival arrival) {
  std::unique_lock<std::mutex> lock(mutex_);
  ZERO_RETURN_IF_ERROR(Sit(rank, stream, std::move(arrival)));
  const int64_t round = round_;
  if (seated_ < group_.size) {
    lock.unlock();
    return AwaitOthers(rank, round, stream);
  }
  EnqueueRound(lock);
  return result_;
}

// mutex_ held.
absl::Status LocalDeviceCalls::Sit(int rank, const Stream& stream, Arrival arrival) {
  ZERO_RETURN_IF_ERROR(group_.health());
  for (int q = 0; q < group_.size; ++q) {
    const Arrival& other = seats_[q].arrival;
    if (!other.arrived || other.Matches(arrival)) continue;
    group_.fail(absl::InvalidArgumentError(absl::StrCat("collective ", round_, ": rank ", q,
                                                        " called ", other.Describe(), ", rank ",
                                                        rank, " called ", arrival.Describe())));
    return group_.health();
  }
  arrival.arrived = true;
  seats_[rank].arrival = std::move(arrival);
  seats_[rank].stream = &stream;
  ++seated_;
  return absl::OkStatus();
}

// mutex_ held.
void LocalDeviceCalls::Rise(int rank) {
  seats_[rank] = Seat();
  --seated_;
}

absl::Status LocalDeviceCalls::AwaitOthers(int rank, int64_t round, const Stream& stream) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (round_ != round) return result_;
      if (seated_ < group_.size) {
        if (absl::FromChrono(std::chrono::steady_clock::now() - start) > group_.deadline) {
          group_.fail(Missing(rank));
        }
        const absl::Status health = group_.health();
        if (!health.ok()) {
          Rise(rank);
          return health;
        }
      }
      // Else the last one is about to enqueue on this rank's stream.
    }
    stream.device().Yield();
  }
}

// mutex_ held.
absl::Status LocalDeviceCalls::Missing(int rank) const {
  std::vector<std::string> missing;
  for (int q = 0; q < group_.size; ++q) {
    if (!seats_[q].arrival.arrived) missing.push_back(absl::StrCat(q));
  }
  return absl::DeadlineExceededError(absl::StrCat(seats_[rank].arrival.Describe(), ": rank ", rank,
                                                  " waited ", absl::FormatDuration(group_.deadline),
                                                  " for rank ", absl::StrJoin(missing, ", ")));
}

void LocalDeviceCalls::EnqueueRound(std::unique_lock<std::mutex>& lock) {
  lock.unlock();  // the others only look whether the round is over
  absl::Status status = group_.health();
  if (status.ok()) {
    status = EnqueueAll();
    if (!status.ok()) {
      group_.fail(status);
      // What has been enqueued may read memory of ranks whose streams do not wait for it.
      for (const Seat& seat : seats_) seat.stream->Synchronize().IgnoreError();
    }
  }
  lock.lock();
  for (int rank = 0; rank < group_.size; ++rank) Rise(rank);
  result_ = std::move(status);
  ++round_;
}

absl::Status LocalDeviceCalls::EnqueueAll() {
  for (int rank = 0; rank < group_.size; ++rank) {
    const absl::Status health = seats_[rank].stream->Health();
    if (health.ok()) continue;
    return absl::Status(health.code(),
                        absl::StrCat("rank ", rank, " did not finish '", seats_[rank].arrival.name,
                                     "': ", health.message()));
  }
  ZERO_RETURN_IF_ERROR(MakeEvents());
  ZERO_RETURN_IF_ERROR(MeetOnStreams());
  if (seats_[0].arrival.kind == CollectiveKind::kBarrier) return absl::OkStatus();
  for (int rank = 0; rank < group_.size; ++rank) ZERO_RETURN_IF_ERROR(CopyToRank(rank));
  return MeetOnStreams();
}

absl::Status LocalDeviceCalls::MakeEvents() {
  for (Seat& seat : seats_) {
    ZERO_ASSIGN_OR_RETURN(seat.here, seat.stream->device().CreateEvent());
  }
  return absl::OkStatus();
}

absl::Status LocalDeviceCalls::MeetOnStreams() {
  const Seat& first = seats_[0];
  for (int rank = 1; rank < group_.size; ++rank) {
    ZERO_RETURN_IF_ERROR(seats_[rank].here->Record(*seats_[rank].stream));
    ZERO_RETURN_IF_ERROR(first.stream->Wait(*seats_[rank].here));
  }
  ZERO_RETURN_IF_ERROR(first.here->Record(*first.stream));
  for (int rank = 1; rank < group_.size; ++rank) {
    ZERO_RETURN_IF_ERROR(seats_[rank].stream->Wait(*first.here));
  }
  return absl::OkStatus();
}

absl::Status LocalDeviceCalls::CopyToRank(int rank) {
  const Arrival& mine = seats_[rank].arrival;
  const Stream& stream = *seats_[rank].stream;
  Device& device = stream.device();
  for (int64_t q = 0; q < group_.size; ++q) {
    const Arrival& theirs = seats_[q].arrival;
    for (size_t p = 0; p < mine.all_to_all.size(); ++p) {
      const AllToAllPiece& piece = mine.all_to_all[p];
      const AllToAllPiece& sent = theirs.all_to_all[p];
      ZERO_RETURN_IF_ERROR(
          device.Copy(stream, static_cast<char*>(piece.receive) + q * piece.bytes,
                      static_cast<const char*>(sent.send) + rank * sent.send_stride, piece.bytes));
    }
    for (size_t p = 0; p < mine.all_gather.size(); ++p) {
      const AllGatherPiece& piece = mine.all_gather[p];
      const void* const from = theirs.all_gather[p].send;
      void* const to = static_cast<char*>(piece.receive) + q * piece.receive_stride;
      if (from == to) continue;
      ZERO_RETURN_IF_ERROR(device.Copy(stream, to, from, piece.bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace zero
