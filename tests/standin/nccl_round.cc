#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/bfloat16_math.h"
#include "tests/standin/cudart_state.h"
#include "tests/standin/nccl_state.h"
#include "tests/standin/quiet_lock.h"

namespace zero::standin {
namespace {

const char* NameOf(NcclOp op) {
  switch (op) {
    case NcclOp::kSend:
      return "send to";
    case NcclOp::kReceive:
      return "receive from";
    case NcclOp::kAllGather:
      return "all-gather";
    case NcclOp::kReduce:
      return "reduce to";
    case NcclOp::kReduceScatter:
      return "reduce-scatter";
  }
  return "unknown";
}

bool IsPair(const NcclCall& call) {
  return call.op == NcclOp::kSend || call.op == NcclOp::kReceive;
}

// What rank `from` sends to, or receives from, `peer`; or the collectives.
std::vector<const NcclCall*> Pick(const std::vector<NcclCall>& calls, NcclOp op, int peer) {
  std::vector<const NcclCall*> picked;
  for (const NcclCall& call : calls) {
    if (call.op == op && call.peer == peer) picked.push_back(&call);
  }
  return picked;
}

std::vector<const NcclCall*> Collectives(const std::vector<NcclCall>& calls) {
  std::vector<const NcclCall*> picked;
  for (const NcclCall& call : calls) {
    if (!IsPair(call)) picked.push_back(&call);
  }
  return picked;
}

std::string DescribeAll(const std::vector<const NcclCall*>& calls) {
  return absl::StrJoin(calls, ", ", [](std::string* out, const NcclCall* call) {
    absl::StrAppend(out, call->Describe());
  });
}

bool SameSizes(const std::vector<const NcclCall*>& a, const std::vector<const NcclCall*>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const NcclCall* x, const NcclCall* y) {
                      return x->count == y->count && x->type == y->type;
                    });
}

// How the groups of two ranks contradict each other, or "".
std::string Disagreement(const NcclRound& round, int a, int b) {
  const auto mine = Collectives(round.calls[a]);
  const auto theirs = Collectives(round.calls[b]);
  if (DescribeAll(mine) != DescribeAll(theirs)) {
    return absl::StrCat("rank ", a, " called ", DescribeAll(mine), "; rank ", b, " called ",
                        DescribeAll(theirs));
  }
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    const auto sent = Pick(round.calls[from], NcclOp::kSend, to);
    const auto received = Pick(round.calls[to], NcclOp::kReceive, from);
    if (SameSizes(sent, received)) continue;
    return absl::StrCat("rank ", from, " called ", DescribeAll(sent), "; rank ", to, " called ",
                        DescribeAll(received));
  }
  return "";
}

// Runs in the stream of `rank`; all have arrived, and nobody changes the round.
void CopyToRank(const NcclRound& round, int rank) {
  const int size = static_cast<int>(round.calls.size());
  for (int q = 0; q < size; ++q) {
    const auto sent = Pick(round.calls[q], NcclOp::kSend, rank);
    const auto received = Pick(round.calls[rank], NcclOp::kReceive, q);
    for (size_t i = 0; i < received.size(); ++i) {
      std::memmove(received[i]->receive, sent[i]->send, static_cast<size_t>(sent[i]->bytes()));
    }
  }
  const auto mine = Collectives(round.calls[rank]);
  for (size_t i = 0; i < mine.size(); ++i) {
    const NcclCall& call = *mine[i];
    std::vector<const char*> parts;
    for (int q = 0; q < size; ++q) {
      parts.push_back(static_cast<const char*>(Collectives(round.calls[q])[i]->send));
    }
    if (call.op == NcclOp::kAllGather) {
      for (int q = 0; q < size; ++q) {
        char* const to = static_cast<char*>(call.receive) + q * call.bytes();
        if (to != parts[q]) std::memcpy(to, parts[q], static_cast<size_t>(call.bytes()));
      }
      continue;
    }
    if (call.op == NcclOp::kReduce && call.peer != rank) continue;
    if (call.op == NcclOp::kReduceScatter) {
      for (const char*& part : parts) part += rank * call.bytes();
    }
    AddRanks(parts, call.receive, call.count, call.type);
  }
}

// What is left behind by a kernel that was stopped: some of it, and not what was meant.
void Spoil(const std::vector<NcclCall>& calls, int size, int rank) {
  for (const NcclCall& call : calls) {
    if (call.receive == nullptr || (call.op == NcclOp::kReduce && call.peer != rank)) continue;
    const int64_t bytes = call.bytes() * (call.op == NcclOp::kAllGather ? size : 1);
    std::memset(call.receive, 0xFF, static_cast<size_t>((bytes + 1) / 2));
  }
}

// gate->mutex held.
void Arrive(ncclComm& communicator, NcclRound& round, int64_t index, std::vector<NcclCall> calls) {
  Clique& clique = *communicator.clique;
  round.calls[communicator.rank] = std::move(calls);
  round.arrived[communicator.rank] = true;
  ++round.arrivals;
  for (int q = 0; q < clique.size; ++q) {
    if (!round.arrived[q]) continue;
    const std::string text = Disagreement(round, q, communicator.rank);
    if (text.empty()) continue;
    Nccl().Violation(absl::StrCat("group ", index, ": ", text));
    clique.broken = true;
    for (const auto& member : clique.members) member->async = ncclInternalError;
  }
  Nccl().gate->changed.notify_all();
}

// The memory of a call as long as it is used.
struct Extent {
  const void* data;
  int64_t bytes;
};
std::vector<Extent> ExtentsOf(const NcclCall& call, int size, int rank) {
  switch (call.op) {
    case NcclOp::kSend:
      return {{call.send, call.bytes()}};
    case NcclOp::kReceive:
      return {{call.receive, call.bytes()}};
    case NcclOp::kAllGather:
      return {{call.send, call.bytes()}, {call.receive, call.bytes() * size}};
    case NcclOp::kReduce:
      if (call.peer != rank) return {{call.send, call.bytes()}};
      return {{call.send, call.bytes()}, {call.receive, call.bytes()}};
    case NcclOp::kReduceScatter:
      return {{call.send, call.bytes() * size}, {call.receive, call.bytes()}};
  }
  return {};
}

std::string Problems(const std::vector<NcclCall>& calls, const ncclComm& communicator,
                     cudaStream_t stream) {
  const auto books = FindStream("NCCL", stream);
  if (books == nullptr || books->device != communicator.device) {
    return absl::StrCat("rank ", communicator.rank, " of GPU ", communicator.device,
                        " uses a stream that is none of that GPU");
  }
  for (const NcclCall& call : calls) {
    for (const Extent& extent : ExtentsOf(call, communicator.clique->size, communicator.rank)) {
      const std::string problem = MemoryProblem(extent.data, extent.bytes, communicator.device);
      if (!problem.empty()) {
        return absl::StrCat(call.Describe(), " on rank ", communicator.rank, ": ", problem);
      }
    }
  }
  return "";
}

// One rank's side of a round, while its stream holds it.
struct Side {
  std::shared_ptr<ncclComm> communicator;
  std::shared_ptr<NcclRound> round;
  int64_t index = 0;
  std::vector<NcclCall> calls;
  bool copied = false;

  bool aborted() const { return communicator->stage == ncclComm::Stage::kAborted; }
};

Operation ArriveOperation(const std::shared_ptr<Side>& side) {
  Operation arrive;
  arrive.name = "nccl arrive";
  arrive.gate = Nccl().gate;
  // NCCL runs the calls of a communicator in order, also on different streams.
  arrive.ready = [side] { return side->communicator->done == side->index || side->aborted(); };
  arrive.run = [side] {
    std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
    if (!side->aborted()) Arrive(*side->communicator, *side->round, side->index, side->calls);
    return absl::OkStatus();
  };
  return arrive;
}

Operation CopyOperation(const std::shared_ptr<Side>& side) {
  Operation copy;
  copy.name = "nccl copy";
  copy.gate = Nccl().gate;
  copy.ready = [side] {
    const Clique& clique = *side->communicator->clique;
    return side->aborted() || (!clique.broken && side->round->arrivals == clique.size);
  };
  copy.run = [side] {
    Clique& clique = *side->communicator->clique;
    {
      std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
      if (side->aborted() || clique.broken) return absl::OkStatus();
      // From here on an abort waits for it: no rank reads what another one has freed.
      ++clique.copying;
    }
    CopyToRank(*side->round, side->communicator->rank);
    std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
    side->copied = true;
    --clique.copying;
    ++side->round->copies;
    Nccl().gate->changed.notify_all();
    return absl::OkStatus();
  };
  return copy;
}

Operation LeaveOperation(const std::shared_ptr<Side>& side) {
  Operation leave;
  leave.name = "nccl leave";
  leave.gate = Nccl().gate;
  leave.ready = [side] {
    return side->round->copies == side->communicator->clique->size || side->aborted();
  };
  leave.run = [side] {
    Clique& clique = *side->communicator->clique;
    if (!side->copied) Spoil(side->calls, clique.size, side->communicator->rank);
    std::lock_guard<std::mutex> lock(Nccl().gate->mutex);
    if (++side->round->leaves == clique.size) clique.rounds.erase(side->index);
    side->communicator->done = side->index + 1;
    Nccl().gate->changed.notify_all();
    return absl::OkStatus();
  };
  return leave;
}

float Load(const char* from, ncclDataType_t type) {
  if (type == ncclFloat32) {
    float x;
    std::memcpy(&x, from, sizeof(x));
    return x;
  }
  if (type == ncclBfloat16) {
    BFloat16 x;
    std::memcpy(&x, from, sizeof(x));
    return ToFloat(x);
  }
  _Float16 x;
  std::memcpy(&x, from, sizeof(x));
  return static_cast<float>(x);
}

void Store(char* to, ncclDataType_t type, float value) {
  if (type == ncclFloat32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (type == ncclBfloat16) {
    const BFloat16 x = ToBFloat16(value);
    std::memcpy(to, &x, sizeof(x));
  } else {
    const _Float16 x = static_cast<_Float16>(value);
    std::memcpy(to, &x, sizeof(x));
  }
}

}  // namespace

int64_t SizeOfNccl(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
      return 4;
    default:
      return 0;
  }
}

int64_t NcclCall::bytes() const { return count * SizeOfNccl(type); }

std::string NcclCall::Describe() const {
  std::string text = NameOf(op);
  if (peer >= 0) absl::StrAppend(&text, " rank ", peer);
  absl::StrAppend(&text, " of ", count, " elements of type ", static_cast<int>(type));
  return text;
}

void AddRanks(const std::vector<const char*>& parts, void* out, int64_t count,
              ncclDataType_t type) {
  const int64_t size = SizeOfNccl(type);
  for (int64_t i = 0; i < count; ++i) {
    char sum[4];  // `out` may be one of the parts
    std::memcpy(sum, parts.back() + i * size, static_cast<size_t>(size));
    for (size_t q = parts.size() - 1; q-- > 0;) {
      Store(sum, type, Load(sum, type) + Load(parts[q] + i * size, type));
    }
    std::memcpy(static_cast<char*>(out) + i * size, sum, static_cast<size_t>(size));
  }
}

ncclResult_t EnqueueRound(const std::shared_ptr<ncclComm>& communicator,
                          std::vector<NcclCall> calls, cudaStream_t stream) {
  const auto side = std::make_shared<Side>();
  side->communicator = communicator;
  side->calls = std::move(calls);
  const std::string problem = Problems(side->calls, *communicator, stream);
  {
    const QuietLock lock(Nccl().gate->mutex);
    if (!problem.empty()) {
      Nccl().Violation(problem);
      return ncclInvalidArgument;
    }
    Clique& clique = *communicator->clique;
    side->index = communicator->started++;
    std::shared_ptr<NcclRound>& round = clique.rounds[side->index];
    if (round == nullptr) {
      round = std::make_shared<NcclRound>();
      round->arrived.resize(static_cast<size_t>(clique.size));
      round->calls.resize(static_cast<size_t>(clique.size));
    }
    side->round = round;
  }
  for (const auto make : {ArriveOperation, CopyOperation, LeaveOperation}) {
    if (EnqueueOperation(stream, make(side)) != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

std::string MemoryProblem(const void* data, int64_t bytes, int device) {
  State& books = Books();
  const QuietLock lock(books.mutex);
  const Place place = books.Find(data, bytes);
  if (!place.known) return "memory that no device has given, or freed";
  if (!place.fits) return absl::StrCat(bytes, " bytes run past the end of their allocation");
  if (!place.host && place.device != device) {
    return absl::StrCat("memory of device ", place.device, " and not of ", device);
  }
  return "";
}

}  // namespace zero::standin
