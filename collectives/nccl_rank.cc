#include "collectives/nccl_rank.h"

#include <atomic>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/call_description.h"
#include "collectives/nccl_hints.h"
#include "device/status.h"

namespace zero {
namespace {

const char* At(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

ncclDataType_t NcclType(DType type) {
  switch (type) {
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    default:
      return ncclFloat32;
  }
}

}  // namespace

struct NcclRank::Shape {
  const char* operation;
  const char* name;
  std::vector<int64_t> bytes;  // of each piece
  bool synchronises = false;   // even without bytes

  int64_t Sum() const {
    int64_t sum = 0;
    for (int64_t piece : bytes) sum += piece;
    return sum;
  }
};

NcclRank::NcclRank(const NcclApi& api, CudaDevice* device, ControlChannel* control,
                   absl::Duration deadline)
    : device_(device),
      control_(control),
      rank_(control->rank()),
      size_(control->size()),
      deadline_(deadline),
      limit_(deadline),
      calls_(device),
      communicator_(api, device) {}

NcclRank::~NcclRank() {
  // Under watch: a rank that dies meanwhile ends the wait.
  if (Health().ok()) {
    calls_.BeginOnHost("end of NCCL");
    absl::Status finished = communicator_.Finish(deadline_);
    if (absl::IsDeadlineExceeded(finished)) finished = FindMissing(calls_.Newest(deadline_));
    if (!finished.ok()) Abort(finished);
  }
  if (watched_) Watchdog::OfProcess().Remove(this);
  if (!id_.empty()) control_->SetAnswer(id_, nullptr);
}

absl::Status NcclRank::Allocate() {
  ZERO_ASSIGN_OR_RETURN(flag_,
                        device_->AllocateHost(sizeof(int32_t), MemoryCategory::kOther,
                                              "failure flag of the group", HostMemory::kReached));
  *flag_.as<int32_t>() = 0;
  ZERO_ASSIGN_OR_RETURN(scratch_,
                        device_->Allocate(size_, MemoryCategory::kOther, "barrier of the group"));
  return absl::OkStatus();
}

absl::Status NcclRank::Start(absl::Span<const NcclIdentity> identities) {
  for (const NcclIdentity& rank : identities) {
    if (rank.boot == identities[rank_].boot) ++local_ranks_;
  }
  id_ = identities[0].unique_id;
  control_->SetAnswer(id_, [this] { return Encode(calls_.standing()); });
  absl::Status status = Allocate();
  if (status.ok()) {
    try {
      Watchdog::OfProcess().Add(this);
      watched_ = true;
    } catch (const std::system_error& error) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("no thread for the watch over the group: ", error.what()));
    }
  }
  if (!status.ok()) {
    Abort(status);
    return status;
  }
  ncclUniqueId id;
  identities[0].unique_id.copy(id.internal, sizeof(id.internal));
  calls_.BeginOnHost("start of NCCL");
  status = communicator_.Start(id, size_, rank_, deadline_);
  if (absl::IsDeadlineExceeded(status)) status = FindMissing(calls_.Newest(deadline_));
  if (status.ok()) {
    calls_.EndOnHost();
    status = SelfTest();
  }
  if (status.ok()) return status;
  Abort(status);
  // What was reported first says more.
  const absl::Status first = Health();
  return absl::Status(first.code(), absl::StrCat("NCCL does not work: ", first.message(),
                                                 NcclHints(local_ranks_, "/dev/shm")));
}

absl::Status NcclRank::AllToAll(const Stream& stream, const char* name,
                                absl::Span<const AllToAllPiece> pieces) {
  Shape shape{"all-to-all", name, {}, false};
  for (const AllToAllPiece& piece : pieces) shape.bytes.push_back(piece.bytes);
  return Call(stream, shape, [&](NcclCalls& calls) {
    for (const AllToAllPiece& piece : pieces) {
      if (piece.bytes == 0) continue;
      // To itself as well: NCCL copies it beside the rest, and one rank takes the same path.
      for (int peer = 0; peer < size_; ++peer) {
        calls.SendBytes(At(piece.send, peer * piece.send_stride), piece.bytes, peer);
        calls.ReceiveBytes(At(piece.receive, peer * piece.bytes), piece.bytes, peer);
      }
    }
  });
}

absl::Status NcclRank::AllGather(const Stream& stream, const char* name,
                                 absl::Span<const AllGatherPiece> pieces) {
  Shape shape{"all-gather", name, {}, false};
  for (const AllGatherPiece& piece : pieces) shape.bytes.push_back(piece.bytes);
  return Call(stream, shape, [&](NcclCalls& calls) {
    for (const AllGatherPiece& piece : pieces) {
      if (piece.bytes == 0) continue;
      if (piece.receive_stride == piece.bytes) {
        calls.AllGatherBytes(piece.send, piece.receive, piece.bytes);
        continue;
      }
      const bool in_place = piece.send == At(piece.receive, rank_ * piece.receive_stride);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_ && in_place) continue;
        calls.SendBytes(piece.send, piece.bytes, peer);
        calls.ReceiveBytes(At(piece.receive, peer * piece.receive_stride), piece.bytes, peer);
      }
    }
  });
}

absl::Status NcclRank::Barrier(const Stream& stream, const char* name) {
  return Call(stream, Shape{"barrier", name, {}, true}, [&](NcclCalls& calls) {
    calls.AllGatherBytes(scratch_.bytes_at(rank_), scratch_.data(), 1);
  });
}

absl::Status NcclRank::ReduceScatter(const Stream& stream, const char* name,
                                     absl::Span<const ReduceScatterPiece> pieces) {
  Shape shape{"reduce-scatter", name, {}, false};
  for (const ReduceScatterPiece& piece : pieces) {
    shape.bytes.push_back(piece.elements * SizeOf(piece.type));
  }
  return Call(stream, shape, [&](NcclCalls& calls) {
    for (const ReduceScatterPiece& piece : pieces) {
      if (piece.elements == 0) continue;
      const ncclDataType_t type = NcclType(piece.type);
      if (piece.send_stride == piece.elements * SizeOf(piece.type)) {
        calls.ReduceScatterSum(piece.send, piece.receive, piece.elements, type);
        continue;
      }
      // NCCL has no reduce-scatter of some columns of each slice.
      for (int root = 0; root < size_; ++root) {
        calls.ReduceSum(At(piece.send, root * piece.send_stride),
                        root == rank_ ? piece.receive : nullptr, piece.elements, type, root);
      }
    }
  });
}

absl::Status NcclRank::Call(const Stream& stream, const Shape& shape,
                            absl::FunctionRef<void(NcclCalls&)> make_calls) {
  const std::string call = DescribeCall(shape.operation, shape.name, shape.bytes);
  const std::string what = absl::StrCat(call, " on rank ", rank_);
  const absl::Status health = Health();
  if (!health.ok()) {
    return absl::AbortedError(absl::StrCat(what, ": the group failed before: ", health.message()));
  }
  for (int64_t piece : shape.bytes) {
    if (piece < 0) return absl::InvalidArgumentError(absl::StrCat(what, ": negative size"));
  }
  if (stream.device().kind() != DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": stream '", stream.name(), "' does not belong to a GPU"));
  }
  Count(shape);
  // Nothing to move, on any rank.
  if (shape.Sum() == 0 && !shape.synchronises) return absl::OkStatus();
  absl::Status enqueued = Enqueue(stream, call, make_calls);
  if (enqueued.ok()) return enqueued;
  if (absl::IsDeadlineExceeded(enqueued)) enqueued = FindMissing(calls_.Newest(limit_));
  // The other ranks would wait for this one. What one of them reported first says more.
  Abort(enqueued);
  return Health();
}

absl::Status NcclRank::Enqueue(const Stream& stream, const std::string& what,
                               absl::FunctionRef<void(NcclCalls&)> make_calls) {
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<CallsInFlight::Call> call,
                        calls_.Begin(stream, what, limit_));
  ZERO_RETURN_IF_ERROR(
      communicator_.Run(stream, absl::StrCat(what, " on rank ", rank_), limit_, make_calls));
  return calls_.End(stream, std::move(call));
}

void NcclRank::Count(const Shape& shape) {
  std::lock_guard<std::mutex> lock(mutex_);
  Traffic& traffic = traffic_[shape.name];
  ++traffic.calls;
  traffic.bytes += shape.Sum() * (size_ - 1);
}

absl::Status NcclRank::FindMissing(const LateCall& call) {
  const RollCall roll(control_, id_, call);
  while (!roll.Over() && Health().ok()) device_->Yield();
  return roll.Verdict();
}

absl::Status NcclRank::During(const absl::Status& failure) const {
  const std::string call = calls_.Oldest();
  if (call.empty() || absl::StrContains(failure.message(), call)) return failure;
  return absl::Status(failure.code(),
                      absl::StrCat(failure.message(), " (during ", call, " on rank ", rank_, ")"));
}

void NcclRank::Check() {
  if (aborting_.load(std::memory_order_acquire)) return;
  absl::Status status = control_->Health();
  if (status.ok()) status = communicator_.AsyncError(absl::StrCat("rank ", rank_));
  if (!status.ok()) return Abort(During(status));
  if (!late_.has_value()) {
    const std::optional<LateCall> call = calls_.Watch();
    if (!call.has_value()) return;
    late_.emplace(control_, id_, *call);
  }
  if (late_->Over()) Abort(late_->Verdict());
}

void NcclRank::Abort(const absl::Status& reason) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (aborting_) {
      // A callback of the control channel, called below by this very thread.
      if (aborter_ == std::this_thread::get_id()) return;
      ended_.wait(lock, [this] { return aborted_; });
      return;
    }
    aborting_ = true;
    aborter_ = std::this_thread::get_id();
  }
  // First of all: what the streams run after the abort must be able to see that it came.
  if (flag_.data() != nullptr) {
    std::atomic_ref<int32_t>(*flag_.as<int32_t>()).store(1, std::memory_order_release);
  }
  // The others next: they would take the end of this communicator for a failure of their own. One
  // of them may have failed before.
  control_->Abort(reason);
  const absl::Status first = control_->Health();
  const bool own = first.ok() || absl::StartsWith(reason.message(), first.message());
  failure_ = own ? reason : During(first);
  failed_.store(true, std::memory_order_release);
  communicator_.Abort();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
  }
  ended_.notify_all();
}

absl::Status NcclRank::Health() const {
  return failed_.load(std::memory_order_acquire) ? failure_ : absl::OkStatus();
}

TrafficTable NcclRank::traffic() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return traffic_;
}

}  // namespace zero
