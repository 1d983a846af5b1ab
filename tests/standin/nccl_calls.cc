// The functions of NCCL, as the stand-in has them.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/standin/cudart_state.h"
#include "tests/standin/nccl_state.h"
#include "tests/standin/quiet_lock.h"

namespace zero::standin {
namespace {

using Stage = ncclComm::Stage;

// The lock of the functions that a driving thread calls: it puts no two threads in an order by
// chance.
class Quiet {
 public:
  Quiet() { Lock(); }
  void Lock() { lock_.emplace(Nccl().gate->mutex); }
  void Unlock() { lock_.reset(); }

 private:
  std::optional<QuietLock> lock_;
};

thread_local std::string last_error;

// This thread's group.
struct OpenGroup {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm*, std::pair<NcclCall, cudaStream_t>>> calls;
};
thread_local OpenGroup open_group;

// gate->mutex held from here on, where nothing else is said.

ncclResult_t Refuse(const std::string& text, ncclResult_t result = ncclInvalidUsage) {
  Nccl().Violation(text);
  last_error = text;
  return result;
}

// What the function must return at once, or ncclSuccess.
ncclResult_t Fault(const char* function) {
  NcclState& state = Nccl();
  if (state.calls_to_failure == 0 || state.failing_function != function) return ncclSuccess;
  if (--state.calls_to_failure > 0) return ncclSuccess;
  state.has_failed = true;
  last_error = absl::StrCat("injected into ", function);
  return state.failing_result;
}

std::shared_ptr<ncclComm> Find(ncclComm_t communicator) {
  for (const auto& known : Nccl().communicators) {
    if (known.get() == communicator) return known;
  }
  return nullptr;
}

// Marks a communicator as used by this thread while a function runs. One at a time. Gives the lock
// away for a moment, so that another thread has a chance to be caught.
class Use {
 public:
  Use(Quiet& lock, const char* function, ncclComm_t handle) : communicator_(Find(handle)) {
    if (communicator_ == nullptr) {
      result_ = Refuse(absl::StrCat(function, ": no communicator"), ncclInvalidArgument);
    } else if (communicator_->ended()) {
      result_ = Refuse(absl::StrCat(function, ": the communicator of rank ", communicator_->rank,
                                    " is used after its end"),
                       ncclInvalidArgument);
    } else if (const std::thread::id none; (communicator_->user != none) ||
                                           (communicator_->holder != none &&
                                            communicator_->holder != std::this_thread::get_id())) {
      result_ = Refuse(absl::StrCat(function, ": the communicator of rank ", communicator_->rank,
                                    " is used by two threads at once"));
    } else {
      entered_ = true;
      communicator_->user = std::this_thread::get_id();
      lock.Unlock();
      std::this_thread::yield();
      lock.Lock();
    }
  }
  ~Use() {
    if (entered_) communicator_->user = std::thread::id();
  }
  ncclResult_t result() const { return result_; }
  ncclComm& operator*() const { return *communicator_; }
  ncclComm* operator->() const { return communicator_.get(); }
  const std::shared_ptr<ncclComm>& get() const { return communicator_; }

 private:
  const std::shared_ptr<ncclComm> communicator_;
  ncclResult_t result_ = ncclSuccess;
  bool entered_ = false;
};

ncclResult_t GetVersion(int* version) {
  Quiet lock;
  if (const ncclResult_t fault = Fault("ncclGetVersion")) return fault;
  *version = Nccl().version;
  return ncclSuccess;
}

const char* GetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* GetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  Quiet lock;
  if (const ncclResult_t fault = Fault("ncclGetUniqueId")) return fault;
  std::memset(id, 0, sizeof(*id));
  const std::string text = absl::StrCat("clique ", Nccl().next_id++);
  text.copy(id->internal, sizeof(id->internal) - 1);
  Nccl().cliques[std::string(id->internal, sizeof(id->internal))] = std::make_shared<Clique>();
  return ncclSuccess;
}

ncclResult_t CommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  Quiet lock;
  *handle = nullptr;
  if (const ncclResult_t fault = Fault("ncclCommInitRankConfig")) return fault;
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0) {
    return Refuse(absl::StrCat("rank ", rank, ": the communicator would block"));
  }
  const auto found = Nccl().cliques.find(std::string(id.internal, sizeof(id.internal)));
  if (found == Nccl().cliques.end()) return Refuse("a unique id that rank 0 did not make");
  Clique& clique = *found->second;
  if (clique.size == 0) {
    clique.size = size;
    clique.members.resize(static_cast<size_t>(size));
  }
  if (size != clique.size || rank < 0 || rank >= size || clique.members[rank] != nullptr) {
    return Refuse(absl::StrCat("rank ", rank, " of ", size, " joins ", clique.size, " ranks"),
                  ncclInvalidArgument);
  }
  for (const auto& member : clique.members) {
    if (member != nullptr && member->device == CurrentDevice()) {
      return Refuse(
          absl::StrCat("ranks ", member->rank, " and ", rank, " both use GPU ", CurrentDevice()));
    }
  }
  auto communicator = std::make_shared<ncclComm>();
  communicator->device = CurrentDevice();
  communicator->clique = found->second;
  communicator->rank = rank;
  communicator->polls_left = Nccl().polls;
  clique.members[rank] = communicator;
  ++clique.joined;
  *handle = communicator.get();
  Nccl().communicators.push_back(std::move(communicator));
  return ncclInProgress;
}

// Whether a call that was made is still being taken in.
bool InProgress(ncclComm& communicator) {
  if (communicator.polls_left > 0) {
    --communicator.polls_left;
    return true;
  }
  const Clique& clique = *communicator.clique;
  switch (communicator.stage) {
    case Stage::kJoining:
      return clique.joined < clique.size;
    case Stage::kFinalizing:
      return clique.finalized < clique.size || communicator.done < communicator.started;
    default:
      break;
  }
  // The first exchange makes connections: that takes both sides.
  return !communicator.taken_in.empty() && communicator.started == 0 &&
         std::any_of(clique.members.begin(), clique.members.end(),
                     [](const auto& member) { return member->groups == 0; });
}

ncclResult_t CommGetAsyncError(ncclComm_t handle, ncclResult_t* result) {
  Quiet lock;
  const Use use(lock, "ncclCommGetAsyncError", handle);
  if (use.result() != ncclSuccess) return use.result();
  if (const ncclResult_t fault = Fault("ncclCommGetAsyncError")) return fault;
  *result = use->async;
  if (use->async != ncclSuccess) return ncclSuccess;
  if (InProgress(*use)) {
    *result = ncclInProgress;
    return ncclSuccess;
  }
  if (use->stage == Stage::kJoining) use->stage = Stage::kReady;
  if (use->stage == Stage::kFinalizing) use->stage = Stage::kFinalized;
  if (use->taken_in.empty()) return ncclSuccess;
  std::vector<NcclCall> calls = std::exchange(use->taken_in, {});
  const cudaStream_t stream = use->stream;
  lock.Unlock();
  const ncclResult_t enqueued = EnqueueRound(use.get(), std::move(calls), stream);
  lock.Lock();
  if (enqueued != ncclSuccess) use->async = enqueued;
  *result = use->async;
  return ncclSuccess;
}

ncclResult_t CommFinalize(ncclComm_t handle) {
  Quiet lock;
  const Use use(lock, "ncclCommFinalize", handle);
  if (use.result() != ncclSuccess) return use.result();
  if (const ncclResult_t fault = Fault("ncclCommFinalize")) return fault;
  if (use->stage != Stage::kReady || !use->taken_in.empty()) {
    return Refuse(absl::StrCat("ncclCommFinalize: rank ", use->rank, " is not ready"));
  }
  use->stage = Stage::kFinalizing;
  use->polls_left = Nccl().polls;
  ++use->clique->finalized;
  return ncclInProgress;
}

ncclResult_t CommDestroy(ncclComm_t handle) {
  Quiet lock;
  const Use use(lock, "ncclCommDestroy", handle);
  if (use.result() != ncclSuccess) return use.result();
  if (use->stage != Stage::kFinalized) {
    return Refuse(absl::StrCat("ncclCommDestroy: rank ", use->rank, " is not finalized"));
  }
  use->stage = Stage::kDestroyed;
  return Fault("ncclCommDestroy");
}

ncclResult_t CommAbort(ncclComm_t handle) {
  Quiet lock;
  const Use use(lock, "ncclCommAbort", handle);
  if (use.result() != ncclSuccess) return use.result();
  use->stage = Stage::kAborted;
  use->taken_in.clear();
  use->clique->broken = true;
  Nccl().gate->changed.notify_all();
  lock.Unlock();
  {
    // In order with the copies: memory may be freed now.
    std::unique_lock<std::mutex> copies(Nccl().gate->mutex);
    Nccl().gate->changed.wait(copies, [&] { return use->clique->copying == 0; });
  }
  lock.Lock();
  return Fault("ncclCommAbort");
}

ncclResult_t GroupStart() {
  Quiet lock;
  if (const ncclResult_t fault = Fault("ncclGroupStart")) return fault;
  ++open_group.depth;
  return ncclSuccess;
}

// The calls of this thread's group that are for one communicator.
ncclResult_t TakeIn(ncclComm& communicator, const OpenGroup& group) {
  for (const auto& [owner, call] : group.calls) {
    if (owner != &communicator) continue;
    if (!communicator.taken_in.empty() && communicator.stream != call.second) {
      return Refuse("calls of one group are for different streams");
    }
    communicator.taken_in.push_back(call.first);
    communicator.stream = call.second;
  }
  communicator.polls_left = Nccl().polls;
  ++communicator.groups;
  return ncclInProgress;
}

ncclResult_t EndGroup(OpenGroup group, ncclResult_t result) {
  std::vector<ncclComm*> communicators;
  for (const auto& [communicator, call] : group.calls) {
    communicator->holder = std::thread::id();
    if (std::count(communicators.begin(), communicators.end(), communicator) == 0) {
      communicators.push_back(communicator);
    }
  }
  if (result != ncclSuccess) return result;
  for (ncclComm* communicator : communicators) {
    if (const ncclResult_t taken = TakeIn(*communicator, group); taken != ncclInProgress) {
      return taken;
    }
  }
  return communicators.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t GroupEnd() {
  Quiet lock;
  if (open_group.depth == 0) return Refuse("ncclGroupEnd without ncclGroupStart");
  const ncclResult_t fault = Fault("ncclGroupEnd");
  if (fault == ncclSuccess && --open_group.depth > 0) return ncclSuccess;
  OpenGroup group = std::exchange(open_group, OpenGroup());
  const ncclResult_t result = fault != ncclSuccess ? fault : group.error;
  return EndGroup(std::move(group), result);
}

// What is wrong with a call, or "".
std::string Problem(const ncclComm& communicator, const NcclCall& call) {
  const bool is_pair = call.op == NcclOp::kSend || call.op == NcclOp::kReceive;
  if (communicator.stage != Stage::kReady) return "the communicator is not ready";
  if (!communicator.taken_in.empty() || communicator.polls_left > 0) {
    return "NCCL is not done with the last call";
  }
  if (is_pair && open_group.depth == 0) return "outside a group it can wait for itself";
  if (call.count <= 0) return "no elements";
  if (SizeOfNccl(call.type) == 0) return "a type that is not used here";
  const bool has_peer = is_pair || call.op == NcclOp::kReduce;
  if (has_peer && (call.peer < 0 || call.peer >= communicator.clique->size)) return "no such rank";
  return "";
}

ncclResult_t Add(const char* function, ncclComm_t handle, const NcclCall& call,
                 cudaStream_t stream) {
  Quiet lock;
  const Use use(lock, function, handle);
  ncclResult_t result = use.result();
  if (result == ncclSuccess) result = Fault(function);
  if (result == ncclSuccess) {
    const std::string problem = Problem(*use, call);
    if (!problem.empty()) {
      result = Refuse(absl::StrCat(call.Describe(), " on rank ", use->rank, ": ", problem));
    }
  }
  if (result != ncclSuccess) {
    open_group.error = open_group.depth > 0 ? result : ncclSuccess;
    return result;
  }
  open_group.calls.push_back({use.get().get(), {call, stream}});
  if (open_group.depth == 0) return EndGroup(std::exchange(open_group, OpenGroup()), ncclSuccess);
  use->holder = std::this_thread::get_id();
  return ncclSuccess;
}

ncclResult_t Send(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                  cudaStream_t stream) {
  const auto n = static_cast<int64_t>(count);
  return Add("ncclSend", handle, {NcclOp::kSend, from, nullptr, n, type, peer}, stream);
}

ncclResult_t Recv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                  cudaStream_t stream) {
  const auto n = static_cast<int64_t>(count);
  return Add("ncclRecv", handle, {NcclOp::kReceive, nullptr, to, n, type, peer}, stream);
}

ncclResult_t AllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclComm_t handle, cudaStream_t stream) {
  const auto n = static_cast<int64_t>(count);
  return Add("ncclAllGather", handle, {NcclOp::kAllGather, from, to, n, type, -1}, stream);
}

ncclResult_t Reduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                    int root, ncclComm_t handle, cudaStream_t stream) {
  const auto n = static_cast<int64_t>(count);
  const int known_root = op == ncclSum ? root : -1;  // sums only
  return Add("ncclReduce", handle, {NcclOp::kReduce, from, to, n, type, known_root}, stream);
}

ncclResult_t ReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream) {
  const auto n = op == ncclSum ? static_cast<int64_t>(count) : -1;  // sums only
  return Add("ncclReduceScatter", handle, {NcclOp::kReduceScatter, from, to, n, type, -1}, stream);
}

}  // namespace

NcclState& Nccl() {
  static NcclState* const state = new NcclState;
  return *state;
}

void ResetNccl() {
  NcclState& state = Nccl();
  std::lock_guard<std::mutex> lock(state.gate->mutex);
  for (const auto& communicator : state.communicators) communicator->clique->members.clear();
  state.communicators.clear();
  state.cliques.clear();
  state.violations.clear();
  state.version = 22809;
  state.polls = 2;
  state.calls_to_failure = 0;
  state.has_failed = false;
}

std::vector<std::string> NcclViolations() {
  std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
  std::vector<std::string> violations = Nccl().violations;
  for (const auto& communicator : Nccl().communicators) {
    if (communicator->ended()) continue;
    violations.push_back(
        absl::StrCat("the communicator of rank ", communicator->rank, " was never ended"));
  }
  return violations;
}

void FailNccl(const std::string& function, int n, ncclResult_t result) {
  std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
  Nccl().failing_function = function;
  Nccl().calls_to_failure = n;
  Nccl().failing_result = result;
  Nccl().has_failed = false;
}

bool NcclHasFailed() {
  std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
  return Nccl().has_failed;
}

void SetNcclAsyncError(int rank, ncclResult_t result) {
  std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
  for (const auto& communicator : Nccl().communicators) {
    if (communicator->rank == rank) communicator->async = result;
  }
}

void SetNcclPolls(int polls) {
  std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
  Nccl().polls = polls;
}

void SetNcclVersion(int version) {
  std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
  Nccl().version = version;
}

std::vector<std::string> NcclFunctions() {
  return {"ncclGetVersion",
          "ncclGetUniqueId",
          "ncclCommInitRankConfig",
          "ncclCommGetAsyncError",
          "ncclCommFinalize",
          "ncclCommDestroy",
          "ncclCommAbort",
          "ncclGroupStart",
          "ncclGroupEnd",
          "ncclSend",
          "ncclRecv",
          "ncclAllGather",
          "ncclReduce",
          "ncclReduceScatter"};
}

}  // namespace zero::standin

namespace zero {

// In place of collectives/nccl_load.cc.
absl::StatusOr<const NcclApi*> LoadNccl() {
  using namespace standin;  // NOLINT
  static const NcclApi api = [] {
    NcclApi table;
    table.version = 22809;
    table.get_version = GetVersion;
    table.get_error_string = GetErrorString;
    table.get_last_error = GetLastError;
    table.get_unique_id = GetUniqueId;
    table.comm_init_rank_config = CommInitRankConfig;
    table.comm_get_async_error = CommGetAsyncError;
    table.comm_finalize = CommFinalize;
    table.comm_destroy = CommDestroy;
    table.comm_abort = CommAbort;
    table.group_start = GroupStart;
    table.group_end = GroupEnd;
    table.send = Send;
    table.recv = Recv;
    table.all_gather = AllGather;
    table.reduce = Reduce;
    table.reduce_scatter = ReduceScatter;
    return table;
  }();
  int version = 0;
  if (const ncclResult_t result = api.get_version(&version); result != ncclSuccess) {
    return absl::UnimplementedError(absl::StrCat("ncclGetVersion: ", api.get_error_string(result)));
  }
  ZERO_RETURN_IF_ERROR(CheckNcclVersion(version));
  return &api;
}

}  // namespace zero
