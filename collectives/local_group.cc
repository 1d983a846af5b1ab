#include "collectives/local_group.h"

#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"

namespace zero {
namespace {

enum class Kind : uint8_t { kAllToAll, kAllGather, kBarrier };

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kAllToAll:
      return "all-to-all";
    case Kind::kAllGather:
      return "all-gather";
    case Kind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

// One rank's side of a collective.
struct Arrival {
  bool arrived = false;
  Kind kind = Kind::kBarrier;
  std::string name;
  std::vector<AllToAllPiece> all_to_all;
  std::vector<AllGatherPiece> all_gather;

  std::vector<int64_t> Bytes() const {
    std::vector<int64_t> bytes;
    for (const AllToAllPiece& piece : all_to_all) bytes.push_back(piece.bytes);
    for (const AllGatherPiece& piece : all_gather) bytes.push_back(piece.bytes);
    return bytes;
  }
  std::string Describe() const {
    return absl::StrCat(zero::Name(kind), " '", name, "' of ", absl::StrJoin(Bytes(), "+"),
                        " bytes");
  }
  bool Matches(const Arrival& other) const {
    return kind == other.kind && name == other.name && Bytes() == other.Bytes();
  }
};

// The k-th collective of every rank. Fields are guarded by the gate of the world.
struct Call {
  explicit Call(int size) : arrivals(static_cast<size_t>(size)) {}

  std::vector<Arrival> arrivals;
  int arrived = 0;
  int copied = 0;
  int left = 0;
};

void CopyAllToAll(const std::vector<Arrival>& arrivals, int rank) {
  const std::vector<AllToAllPiece>& mine = arrivals[rank].all_to_all;
  for (size_t q = 0; q < arrivals.size(); ++q) {
    for (size_t p = 0; p < mine.size(); ++p) {
      const AllToAllPiece& theirs = arrivals[q].all_to_all[p];
      if (mine[p].bytes == 0) continue;
      std::memcpy(static_cast<char*>(mine[p].receive) + q * mine[p].bytes,
                  static_cast<const char*>(theirs.send) + rank * theirs.send_stride,
                  static_cast<size_t>(mine[p].bytes));
    }
  }
}

void CopyAllGather(const std::vector<Arrival>& arrivals, int rank) {
  const std::vector<AllGatherPiece>& mine = arrivals[rank].all_gather;
  for (size_t q = 0; q < arrivals.size(); ++q) {
    for (size_t p = 0; p < mine.size(); ++p) {
      const void* from = arrivals[q].all_gather[p].send;
      void* to = static_cast<char*>(mine[p].receive) + q * mine[p].receive_stride;
      if (mine[p].bytes == 0 || from == to) continue;
      std::memcpy(to, from, static_cast<size_t>(mine[p].bytes));
    }
  }
}

}  // namespace

struct LocalWorld::Shared {
  Shared(int ranks, absl::Duration limit) : size(ranks), deadline(limit) {}

  const int size;
  const absl::Duration deadline;
  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  // Guarded by gate->mutex:
  absl::Status failure;
  int copying = 0;  // ranks that read other ranks' memory at this moment
  std::map<int64_t, std::shared_ptr<Call>> calls;

  // Returns when no rank reads another's memory any more, so that it may be freed.
  void Fail(const absl::Status& reason) {
    std::unique_lock<std::mutex> lock(gate->mutex);
    if (failure.ok()) failure = reason;
    gate->changed.notify_all();
    gate->changed.wait(lock, [this] { return copying == 0; });
  }

  absl::Status Health() const {
    std::lock_guard<std::mutex> lock(gate->mutex);
    return failure;
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
    arrival.kind = Kind::kAllToAll;
    arrival.all_to_all.assign(pieces.begin(), pieces.end());
    return Enqueue(stream, name, std::move(arrival));
  }

  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override {
    Arrival arrival;
    arrival.kind = Kind::kAllGather;
    arrival.all_gather.assign(pieces.begin(), pieces.end());
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
  absl::Status Arrive(int64_t index, Arrival arrival);
  absl::Status Copy(Call& call);
  absl::Status Leave(int64_t index, Call& call);
  void Expire(const Call& call);

  const std::shared_ptr<Shared> shared_;
  const int rank_;
  int64_t next_index_ = 0;
  mutable std::mutex traffic_mutex_;
  TrafficTable traffic_;
};

absl::Status LocalWorld::Group::Enqueue(const Stream& stream, const char* name, Arrival arrival) {
  arrival.name = name;
  const absl::Status health = Health();
  if (!health.ok()) {
    return absl::AbortedError(absl::StrCat(arrival.Describe(), " on rank ", rank_,
                                           ": the group failed before: ", health.message()));
  }
  int64_t bytes = 0;
  for (int64_t piece : arrival.Bytes()) {
    if (piece < 0) {
      return absl::InvalidArgumentError(absl::StrCat(arrival.Describe(), ": negative size"));
    }
    bytes += piece;
  }
  {
    std::lock_guard<std::mutex> lock(traffic_mutex_);
    Traffic& traffic = traffic_[name];
    ++traffic.calls;
    traffic.bytes += bytes * (size() - 1);
  }

  const int64_t index = next_index_++;
  std::shared_ptr<Call> call;
  {
    std::lock_guard<std::mutex> lock(shared_->gate->mutex);
    std::shared_ptr<Call>& entry = shared_->calls[index];
    if (entry == nullptr) entry = std::make_shared<Call>(size());
    call = entry;
  }
  // A rank whose stream failed will not arrive: the others must not wait for it.
  const auto fail = [this, name](const absl::Status& status) {
    shared_->Fail(absl::Status(status.code(), absl::StrCat("rank ", rank_, " did not finish '",
                                                           name, "': ", status.message())));
  };
  Shared* const shared = shared_.get();

  Operation arrive;
  arrive.name = name;
  arrive.run = [this, index, arrived = std::move(arrival)]() mutable {
    return Arrive(index, std::move(arrived));
  };
  arrive.skip = fail;
  ZERO_RETURN_IF_ERROR(stream.Enqueue(std::move(arrive)));

  Operation copy;
  copy.name = name;
  copy.gate = shared->gate;
  copy.ready = [shared, call] { return !shared->failure.ok() || call->arrived == shared->size; };
  copy.deadline = shared->deadline;
  copy.expire = [this, call] { Expire(*call); };
  copy.run = [this, call] { return Copy(*call); };
  copy.skip = fail;
  ZERO_RETURN_IF_ERROR(stream.Enqueue(std::move(copy)));

  Operation leave;
  leave.name = name;
  leave.gate = shared->gate;
  leave.ready = [shared, call] {
    return call->copied == shared->size || (!shared->failure.ok() && shared->copying == 0);
  };
  leave.run = [this, index, call] { return Leave(index, *call); };
  leave.skip = fail;
  return stream.Enqueue(std::move(leave));
}

absl::Status LocalWorld::Group::Arrive(int64_t index, Arrival arrival) {
  std::string disagreement;
  {
    std::lock_guard<std::mutex> lock(shared_->gate->mutex);
    if (!shared_->failure.ok()) return shared_->failure;
    Call& call = *shared_->calls[index];
    for (int q = 0; q < size() && disagreement.empty(); ++q) {
      const Arrival& other = call.arrivals[q];
      if (other.arrived && !other.Matches(arrival)) {
        disagreement = absl::StrCat("collective ", index, ": rank ", q, " called ",
                                    other.Describe(), ", rank ", rank_, " called ",
                                    arrival.Describe());
      }
    }
    arrival.arrived = true;
    call.arrivals[rank_] = std::move(arrival);
    if (disagreement.empty() && ++call.arrived == size()) shared_->gate->changed.notify_all();
  }
  if (disagreement.empty()) return absl::OkStatus();
  shared_->Fail(absl::InvalidArgumentError(disagreement));
  return Health();
}

void LocalWorld::Group::Expire(const Call& call) {
  std::vector<std::string> missing;
  std::string what;
  {
    std::lock_guard<std::mutex> lock(shared_->gate->mutex);
    what = call.arrivals[rank_].Describe();
    for (int q = 0; q < size(); ++q) {
      if (!call.arrivals[q].arrived) missing.push_back(absl::StrCat(q));
    }
  }
  if (missing.empty()) return;  // they came at the last moment
  shared_->Fail(absl::DeadlineExceededError(absl::StrCat(
      what, ": rank ", rank_, " waited ", absl::FormatDuration(shared_->deadline), " for rank ",
      absl::StrJoin(missing, ", "))));
}

absl::Status LocalWorld::Group::Copy(Call& call) {
  {
    std::lock_guard<std::mutex> lock(shared_->gate->mutex);
    if (!shared_->failure.ok()) return shared_->failure;
    ++shared_->copying;
  }
  // Nobody changes `arrivals` any more: all have arrived.
  CopyAllToAll(call.arrivals, rank_);
  CopyAllGather(call.arrivals, rank_);
  std::lock_guard<std::mutex> lock(shared_->gate->mutex);
  --shared_->copying;
  if (++call.copied == size() || shared_->copying == 0) shared_->gate->changed.notify_all();
  return absl::OkStatus();
}

absl::Status LocalWorld::Group::Leave(int64_t index, Call& call) {
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
