// What a configuration costs, before anything is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "device/memory.h"
#include "zero/config.h"
#include "zero/layout.h"
#include "zero/model.h"
#include "zero/offload/offload_plan.h"
#include "zero/offload/offload_traffic.h"
#include "zero/reduction_plan.h"

namespace zero {

// Names that traffic is counted under (ProcessGroup::traffic).
inline constexpr const char* kReduceGradients = "reduce_gradients";
inline constexpr const char* kGatherGradients = "gather_gradients";
inline constexpr const char* kGatherWeights = "gather_weights";
inline constexpr const char* kEvaluation = "evaluation";
inline constexpr const char* kControl = "control";
inline constexpr const char* kStateTransfer = "state";
inline constexpr const char* kSaving = "saving";

// Bytes that one rank sends, by name.
using WireBytes = std::map<std::string, int64_t>;

// Elements of state that pass through the staging buffers at once, of all ranks together.
inline constexpr int64_t kTransferElements = 131072;
// Steps whose results may be outstanding when a further one is enqueued.
inline constexpr int kStepsInFlight = 2;
inline constexpr int kStepRows = kStepsInFlight + 1;  // counts that the next step may be

// Offsets into the `scalars` allocation.
struct ScalarLayout {
  int64_t state = 0;            // StepState
  int64_t scalars = 0;          // StepScalars
  int64_t groups = 0;           // GroupScalars[groups]
  int64_t rows = 0;             // StepRow[kStepRows]
  int64_t row_groups = 0;       // GroupScalars[kStepRows][groups]
  int64_t own_norm = 0;         // RankNorm
  int64_t rank_norms = 0;       // RankNorm[world size]
  int64_t record = 0;           // StepRecord
  int64_t first_written = 0;    // int64_t
  int64_t written_part = 0;     // NormPartial, where what was written is checked, and
  int64_t written_scratch = 0;  // NormPartial[chunks of the longest whole segment]
  int64_t failures = 0;         // int32_t[kStepRows]: whether the group had failed at a step's end
  int64_t partials = 0;         // NormPartial[norm_rows]
  int64_t bases = 0;            // int64_t[norm_rows]
  int64_t scratch = 0;          // NormPartial[chunks of the longest slice]
  int64_t group_map = 0;        // one byte per 64 elements of what this rank updates
  int64_t bytes = 0;
  int64_t norm_rows = 0;  // trainable segments that are not empty, in registration order
};

struct Plan {
  Config config;
  int world_size = 1;
  int moments = 0;  // that the optimizer keeps of an element
  Layout layout;
  ReductionPlan reduction;

  // Who holds what: offsets into one allocation each.
  BlockLayout weights;
  BlockLayout gradients;  // stored
  BlockLayout masters;    // of 16-bit trainable segments, or the remainders of split ones
  BlockLayout moment1;
  BlockLayout moment2;
  BlockLayout group_map;
  ScalarLayout scalars;
  int64_t send_bytes = 0;  // of the buffer that gradients are converted in before they are sent
  bool uses_gradient_slots = false;
  OffloadPlan offload;

  // Bytes on one rank, the same on every rank. w, s: bytes of a written and a stored gradient
  // element; o: of masters and moments; T, F: trainable and frozen elements with padding; N ranks.
  //   stage 0: weights w(T+F)    gradients sT    optimizer_states oT
  //   stage 1: weights w(T+F)    gradients sT    optimizer_states oT/N
  //   stage 2: weights w(T+F)    gradients sT/N  optimizer_states oT/N
  //   stage 3: weights w(T+F)/N  gradients sT/N  optimizer_states oT/N
  // With w = s = 2, o = 12, F = 0 these are 16P, 4P+12P/N, 2P+14P/N, 16P/N (ZeRO, Rajbhandari et
  // al., arXiv 1910.02054, figure 1). Besides:
  //   gathered_weights  stage 3: prefetch + 1 slots as large as the largest unit, resident units
  //   gradient_slots    2 slots as large as the largest unit, resident units; stages 0 and 1 only
  //                     where a stored gradient is not what the trainer writes
  //   receive           2 x w x min(bucket, largest unit); nothing for one rank
  //   send              w x min(bucket, largest unit) where Config::communication is another dtype
  //   scalars, staging, host_staging  small; the last is memory of the host
  // Where a share q of the slices is offloaded (Config::offload), states take (1-q) of the above on
  // the device, with them stored gradients (unless Offload::gradients is false, and in stage 1) and
  // offloaded weights. q of them, each piece's sections padded to 4096 bytes, are
  //   host_states     (s+o)T/N  or, on a disk, offload.disk_bytes
  //   host_weights    w(T+F)/N  likewise
  //   host_slots      buffer_count pieces on their way, and as many of weights where those are on a
  //                   disk; with a disk also 6 sections of a piece, of 4 MiB at most, that states
  //                   pass through when they are filled, read or saved
  //   offload_slots   2 x s x the slice of the largest reduction group
  std::array<int64_t, kMemoryCategories> bytes = {};
  int64_t bytes_of(MemoryCategory category) const { return bytes[static_cast<int>(category)]; }
  int64_t total_bytes() const;
  int64_t device_bytes()
      const;  // all but memory of the host: what counts against a device's capacity

  // Bytes that one rank sends in one step of `micro_batches` training passes, each of which
  // acquires every unit in forward order, then in backward order. Times (N-1)/N, A = micro_batches,
  // x = w at A = 1, else s; x and AwT with the bytes of Config::communication where it is set:
  //   stage 0: xT + sT    stage 1: xT + wT    stage 2: AwT + wT
  //   stage 3: AwT + w x elements gathered
  // and 40 bytes of control to each other rank. Evaluation, with the units that it evicts and a
  // later pass gathers again, and saving are counted on their own.
  WireBytes step_wire(int64_t micro_batches) const;

  // Bytes that one rank moves in such a step because of Config::offload, scalars apart, q being the
  // share that is offloaded, with each piece's sections padded to 4096 bytes on the disk:
  //   from the device  A x q x sT/N where gradients are stored with the states, else q x sT/N
  //   to the device    x q x sT/N where they are; q x wT/N of updated weights, or the slices
  //                    of every gather where weights are offloaded
  //   disk             records are read once and written once without the gradient; gradients are
  //                    written as often as they leave and read as often, weights read for each
  //                    gather and written once
  // Weights that are their own masters, or part of them, are also moved to the update.
  OffloadTraffic step_offload(int64_t micro_batches) const;

  // Where parameter `parameter` of unit `unit` starts in adopted memory (see Adopted); the trainer
  // allocates weights.bytes and gradients.bytes, 64-byte aligned. -1: not stored there.
  int64_t weight_offset(int unit, int parameter) const;
  int64_t gradient_offset(int unit, int parameter) const;

  // Stage 3: bytes of slices that one rank contributes to the gathers of a step's first and of each
  // later pass.
  int64_t first_pass_gathered = 0;
  int64_t later_pass_gathered = 0;
  // What these gathers load of offloaded weights.
  OffloadTraffic first_pass_loaded;
  OffloadTraffic later_pass_loaded;
};

// dtype in which a segment's gradient is stored between micro-batches.
DType StoredType(const Config& config, const Segment& segment);
// dtype in which gradients of `source`, the written or the stored dtype, are sent.
DType SentType(const Config& config, DType source);
// Bytes that an element's master takes besides the weight; 0: it has none of its own.
int64_t MasterBytes(const Config& config, const Segment& segment);

// Of the host, for the scalars of a step, the parameter groups of what is offloaded, and the flag
// of a disk.
inline constexpr int64_t kDiskFlagBytes = 64;
int64_t OffloadScalarBytes(const Plan& plan);

// Checks `config` and `model` and lays the model out for `world_size` ranks. Allocates no device
// memory. kInvalidArgument names the unit, parameter or field.
absl::StatusOr<Plan> MakePlan(const Config& config, const Model& model, int world_size);

}  // namespace zero
