#include "collectives/local_group.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/local_call.h"
#include "collectives/local_device_call.h"
#include "device/device.h"
#include "device/host_device.h"
#include "device/status.h"
#include "kernels/host_sum.h"

namespace zero {
struct LocalWorld::Shared {
  Shared(int ranks, absl::Duration limit)
      : size(ranks),
        deadline(limit),
        device_calls({ranks, limit, [this] { return Health(); },
                      [this](const absl::Status& reason) { Fail(reason); }}) {}

  const int size;
  const absl::Duration deadline;
  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  // Guarded by gate->mutex:
  absl::Status failure;  // written once, before `failed`
  std::atomic<bool> failed{false};
  int copying = 0;  // ranks that read other ranks' memory at this moment
  std::map<int64_t, std::shared_ptr<LocalCall>> calls;

  LocalDeviceCalls device_calls;  // of streams that are not the host's

  // Returns when no rank reads another's memory any more, so that it may be freed. Copies are all
  // that it waits for, and none starts after a failure.
  void Fail(const absl::Status& reason) {
    std::unique_lock<std::mutex> lock(gate->mutex);
    Fail(lock, reason);
  }
  void Fail(std::unique_lock<std::mutex>& lock, const absl::Status& reason) {
    if (failure.ok()) {
      failure = reason;
      failed.store(true, std::memory_order_release);
    }
    gate->changed.notify_all();
    gate->changed.wait(lock, [this] { return copying == 0; });
  }

  // The call of this index, made by the first rank that asks.
  std::shared_ptr<LocalCall> At(int64_t index) {
    std::lock_guard<std::mutex> lock(gate->mutex);
    std::shared_ptr<LocalCall>& call = calls[index];
    if (call == nullptr) call = std::make_shared<LocalCall>(size);
    return call;
  }

  // Takes no lock while all is well: a driving thread that did would be synchronised with the
  // streams of all ranks by chance, and ThreadSanitizer would miss an event that was forgotten.
  absl::Status Health() const {
    return failed.load(std::memory_order_acquire) ? failure : absl::OkStatus();
  }
};

class LocalWorld::Group : public ProcessGroup {
 public:
  Group(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_->size; }
  absl::Duration deadline() const override { return shared_->deadline; }

  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override {
    Arrival arrival;
    arrival.kind = CollectiveKind::kAllToAll;
    arrival.all_to_all.assign(pieces.begin(), pieces.end());
    return Enqueue(stream, name, std::move(arrival));
  }

  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override {
    Arrival arrival;
    arrival.kind = CollectiveKind::kAllGather;
    arrival.all_gather.assign(pieces.begin(), pieces.end());
    return Enqueue(stream, name, std::move(arrival));
  }

  bool has_ordered_reduction(DeviceKind kind) const override { return kind == DeviceKind::kHost; }
  absl::Status ReduceInOrder(const Stream& stream, const char* name,
                             absl::Span<const ReductionPiece> pieces) override {
    if (!has_ordered_reduction(stream.device().kind())) {
      return ProcessGroup::ReduceInOrder(stream, name, pieces);
    }
    Arrival arrival;
    arrival.kind = CollectiveKind::kReduction;
    arrival.reductions.assign(pieces.begin(), pieces.end());
    return Enqueue(stream, name, std::move(arrival));
  }

  absl::Status Barrier(const Stream& stream, const char* name) override {
    return Enqueue(stream, name, Arrival());
  }

  void Abort(const absl::Status& reason) override { shared_->Fail(reason); }
  absl::Status Health() const override { return shared_->Health(); }

  TrafficTable traffic() const override {
    std::lock_guard<std::mutex> lock(traffic_mutex_);
    return traffic_;
  }

 private:
  // A collective is three operations: arrive; copy, when all have arrived; leave, when all have
  // copied. None of them blocks, so that any scheduler can drive them.
  absl::Status Enqueue(const Stream& stream, const char* name, Arrival arrival);
  absl::Status Check(const Arrival& arrival) const;
  void Count(const Arrival& arrival);
  absl::Status Arrive(int64_t index, LocalCall& call, Arrival arrival);
  absl::Status Copy(LocalCall& call, ThreadPool* pool);
  absl::Status Leave(int64_t index, LocalCall& call);
  // The deadline has passed since this rank began to wait for the others.
  void Expire(const LocalCall& call);
  // This rank will not finish the call: the others must not wait for it.
  void Fail(const char* name, const absl::Status& reason);

  const std::shared_ptr<Shared> shared_;
  const int rank_;
  int64_t next_index_ = 0;
  mutable std::mutex traffic_mutex_;
  TrafficTable traffic_;
};

absl::Status LocalWorld::Group::Check(const Arrival& arrival) const {
  const absl::Status health = Health();
  if (!health.ok()) {
    return absl::AbortedError(absl::StrCat(arrival.Describe(), " on rank ", rank_,
                                           ": the group failed before: ", health.message()));
  }
  for (int64_t piece : arrival.Bytes()) {
    if (piece >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(arrival.Describe(), ": negative size"));
  }
  for (const ReductionPiece& piece : arrival.reductions) {
    const void* const own =
        static_cast<const char*>(piece.send) + rank_ * piece.slice * SizeOf(piece.type);
    const absl::Status status = CheckHostSum(
        {{&own, 1}, piece.type, piece.out, piece.out_type, piece.accumulate, piece.columns});
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(arrival.Describe(), ": ", status.message()));
  }
  return absl::OkStatus();
}

void LocalWorld::Group::Count(const Arrival& arrival) {
  int64_t bytes = 0;
  for (int64_t piece : arrival.Bytes()) bytes += piece;
  std::lock_guard<std::mutex> lock(traffic_mutex_);
  Traffic& traffic = traffic_[arrival.name];
  ++traffic.calls;
  traffic.bytes += bytes * (size() - 1);
}

absl::Status LocalWorld::Group::Enqueue(const Stream& stream, const char* name, Arrival arrival) {
  arrival.name = name;
  ZERO_RETURN_IF_ERROR(Check(arrival));
  Count(arrival);
  if (stream.device().kind() != DeviceKind::kHost) {
    return shared_->device_calls.Run(rank_, stream, std::move(arrival));
  }
  const int64_t index = next_index_++;
  // Where the stream keeps the call between its three operations.
  const auto call = std::make_shared<std::shared_ptr<LocalCall>>();
  const auto fail = [this, name](const absl::Status& reason) { Fail(name, reason); };
  Shared* const shared = shared_.get();

  Operation arrive;
  arrive.name = name;
  arrive.run = [this, index, call, arrived = std::move(arrival)]() mutable {
    *call = shared_->At(index);
    return Arrive(index, **call, std::move(arrived));
  };
  arrive.skip = fail;
  ZERO_RETURN_IF_ERROR(stream.Enqueue(std::move(arrive)));

  Operation copy;
  copy.name = name;
  copy.gate = shared->gate;
  copy.ready = [shared, call] { return !shared->failure.ok() || (*call)->arrived == shared->size; };
  copy.deadline = shared->deadline;
  copy.expire = [this, call] { Expire(**call); };
  copy.run = [this, call, pool = HostPool(stream)] { return Copy(**call, pool); };
  copy.skip = fail;
  ZERO_RETURN_IF_ERROR(stream.Enqueue(std::move(copy)));

  Operation leave;
  leave.name = name;
  leave.gate = shared->gate;
  leave.ready = [shared, call] {
    return (*call)->copied == shared->size || (!shared->failure.ok() && shared->copying == 0);
  };
  leave.run = [this, index, call] { return Leave(index, **call); };
  leave.skip = fail;
  return stream.Enqueue(std::move(leave));
}

void LocalWorld::Group::Fail(const char* name, const absl::Status& reason) {
  shared_->Fail(absl::Status(reason.code(), absl::StrCat("rank ", rank_, " did not finish '", name,
                                                         "': ", reason.message())));
}

absl::Status LocalWorld::Group::Arrive(int64_t index, LocalCall& call, Arrival arrival) {
  std::unique_lock<std::mutex> lock(shared_->gate->mutex);
  if (!shared_->failure.ok()) return shared_->failure;
  for (int q = 0; q < size(); ++q) {
    const Arrival& other = call.arrivals[q];
    if (!other.arrived || other.Matches(arrival)) continue;
    shared_->Fail(lock, absl::InvalidArgumentError(absl::StrCat(
                            "collective ", index, ": rank ", q, " called ", other.Describe(),
                            ", rank ", rank_, " called ", arrival.Describe())));
    return shared_->failure;
  }
  arrival.arrived = true;
  call.arrivals[rank_] = std::move(arrival);
  if (++call.arrived == size()) shared_->gate->changed.notify_all();
  return absl::OkStatus();
}

void LocalWorld::Group::Expire(const LocalCall& call) {
  std::unique_lock<std::mutex> lock(shared_->gate->mutex);
  std::vector<std::string> missing;
  for (int q = 0; q < size(); ++q) {
    if (!call.arrivals[q].arrived) missing.push_back(absl::StrCat(q));
  }
  if (missing.empty()) return;  // they came at the last moment
  shared_->Fail(lock, absl::DeadlineExceededError(
                          absl::StrCat(call.arrivals[rank_].Describe(), ": rank ", rank_,
                                       " waited ", absl::FormatDuration(shared_->deadline),
                                       " for rank ", absl::StrJoin(missing, ", "))));
}

absl::Status LocalWorld::Group::Copy(LocalCall& call, ThreadPool* pool) {
  {
    std::lock_guard<std::mutex> lock(shared_->gate->mutex);
    if (!shared_->failure.ok()) return shared_->failure;
    ++shared_->copying;
  }
  // Nobody changes `arrivals` any more: all have arrived.
  CopyToRank(call.arrivals, rank_, pool);
  std::lock_guard<std::mutex> lock(shared_->gate->mutex);
  --shared_->copying;
  ++call.copied;
  const bool given_up = !shared_->failure.ok() && shared_->copying == 0;
  if (call.copied == size() || given_up) shared_->gate->changed.notify_all();
  return absl::OkStatus();
}

absl::Status LocalWorld::Group::Leave(int64_t index, LocalCall& call) {
  std::lock_guard<std::mutex> lock(shared_->gate->mutex);
  if (call.copied < size()) return shared_->failure;
  if (++call.left == size()) shared_->calls.erase(index);
  return absl::OkStatus();
}

LocalWorld::LocalWorld(int size, absl::Duration deadline)
    : shared_(std::make_shared<Shared>(size, deadline)) {
  for (int rank = 0; rank < size; ++rank) {
    groups_.push_back(std::make_unique<Group>(shared_, rank));
  }
}

LocalWorld::~LocalWorld() = default;

int LocalWorld::size() const { return shared_->size; }

ProcessGroup* LocalWorld::group(int rank) { return groups_[rank].get(); }

}  // namespace zero
