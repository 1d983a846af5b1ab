// The state of the NCCL stand-in: who is connected with whom, what is under way, what went wrong.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/operation.h"
#include "tests/standin/nccl_standin.h"

namespace zero::standin {

enum class NcclOp : uint8_t { kSend, kReceive, kAllGather, kReduce, kReduceScatter };

struct NcclCall {
  NcclOp op = NcclOp::kSend;
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t count = 0;
  ncclDataType_t type = ncclInt8;
  int peer = -1;  // or root

  int64_t bytes() const;
  std::string Describe() const;  // without addresses
};

// The k-th group of every rank.
struct NcclRound {
  std::vector<bool> arrived;  // by rank
  std::vector<std::vector<NcclCall>> calls;
  int arrivals = 0;
  int copies = 0;
  int leaves = 0;
};

struct Clique {
  int size = 0;
  std::vector<std::shared_ptr<ncclComm>> members;  // by rank; null: not there yet
  int joined = 0;
  int finalized = 0;
  bool broken = false;  // a member has aborted, or the ranks disagree: nothing is copied any more
  int copying = 0;
  std::map<int64_t, std::shared_ptr<NcclRound>> rounds;
};

// The one state, and the gate that guards it. Operations in streams wait at it.
struct NcclState {
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  int version = 22809;
  int polls = 2;
  std::string failing_function;
  int calls_to_failure = 0;  // 0: none
  ncclResult_t failing_result = ncclSuccess;
  bool has_failed = false;
  int64_t next_id = 1;
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by unique id
  std::vector<std::shared_ptr<ncclComm>> communicators;    // all, ended ones as well
  std::vector<std::string> violations;

  // gate->mutex held:
  void Violation(const std::string& text) { violations.push_back(text); }
};
NcclState& Nccl();

// Puts the calls into the stream as three operations: arrive, copy when all have, leave when all
// have copied. gate->mutex not held.
ncclResult_t EnqueueRound(const std::shared_ptr<ncclComm>& communicator,
                          std::vector<NcclCall> calls, cudaStream_t stream);

// What is wrong with `bytes` at `data` for a kernel of GPU `device`, or "".
std::string MemoryProblem(const void* data, int64_t bytes, int device);

int64_t SizeOfNccl(ncclDataType_t type);  // 0: no type that is used here

// sum (over q, last rank first) of parts[q][i]; rounded to `type` after each addition.
void AddRanks(const std::vector<const char*>& parts, void* out, int64_t count, ncclDataType_t type);

}  // namespace zero::standin

// What NCCL keeps to itself.
struct ncclComm {
  enum class Stage : uint8_t { kJoining, kReady, kFinalizing, kFinalized, kDestroyed, kAborted };

  std::shared_ptr<zero::standin::Clique> clique;
  int rank = 0;
  int device = 0;  // as CUDA numbers it
  Stage stage = Stage::kJoining;
  int polls_left = 0;
  ncclResult_t async = ncclSuccess;

  // A group that was ended and is not in its stream yet.
  std::vector<zero::standin::NcclCall> taken_in;
  cudaStream_t stream = nullptr;
  int64_t groups = 0;   // ended so far
  int64_t started = 0;  // rounds in streams
  int64_t done = 0;     // rounds that have run; they run in order

  std::thread::id user;    // inside a call
  std::thread::id holder;  // between its first call of a group and the group's end

  bool ended() const { return stage == Stage::kDestroyed || stage == Stage::kAborted; }
};
