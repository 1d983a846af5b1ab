// What tests set and ask of the NCCL stand-in.
//
// It runs in the streams of the cudart stand-in, and is stricter than NCCL: where ranks disagree in
// operation, count, type, peer or order, where memory is freed or too short, where a communicator
// is used by two threads at once, after its end, or before NCCL is done with the last call, where a
// send or receive is not part of a group, it keeps a violation, and no rank gets past it without an
// error. It takes calls in late, on purpose: work is in the stream only when a poll has said so. A
// collective whose peer does not come stays in its stream until ncclCommAbort; then the stream goes
// on, with some of what was to be received spoilt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/nccl_api.h"

namespace zero::standin {

// Forgets faults, counts, violations and communicators; no stream may hold their work.
void ResetNccl();

// What was done that NCCL forbids, or would not survive. Communicators that were neither destroyed
// nor aborted are among it.
std::vector<std::string> NcclViolations();

// The n-th call of `function` from now on, counted from 1 over all ranks, returns `result`: in
// place of what it does, but for ncclCommDestroy and ncclCommAbort, which do it.
void FailNccl(const std::string& function, int n, ncclResult_t result);
bool NcclHasFailed();  // that call has come

// Every communicator of `rank` reports it from now on.
void SetNcclAsyncError(int rank, ncclResult_t result);

// Polls that find a call in progress, before one that does not. 2 after a reset.
void SetNcclPolls(int polls);
void SetNcclVersion(int version);

// Names of all functions that can fail.
std::vector<std::string> NcclFunctions();

}  // namespace zero::standin
