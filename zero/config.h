// What to shard, how to update, and how much memory to spend on overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/reduction_kind.h"
#include "device/dtype.h"

namespace zero {

// kAdamW: decay acts on the weight; kAdam: it is added to the gradient (kernels.h has the
// formulas).
enum class OptimizerKind : uint8_t { kAdamW, kAdam, kSgd, kLion };

// What the optimizer keeps of a 16-bit weight besides the weight. fp32 parameters are their own
// masters, whichever is chosen.
//   kF32:    an fp32 master, 4 bytes
//   kSplit:  the 16 low bits of the master, 2 bytes; weight and remainder together are the master,
//            exactly. bf16 only, and rounds to nearest, ties away from zero
//   kNone:   nothing; the weight is updated in place and rounded stochastically. bf16 only
enum class MasterKind : uint8_t { kF32, kSplit, kNone };

// How an fp32 master becomes a 16-bit weight. Ties away from zero needs bf16.
enum class WeightRounding : uint8_t { kNearestEven, kNearestAway };

struct ParameterGroup {
  double learning_rate_factor = 1;
  double weight_decay = 0;
  // AssignGroups puts every parameter with a name that matches (fnmatch: * ? [...]) here, one of
  // its aliases will do. Empty: only parameters whose Parameter::group says so.
  std::string pattern = {};
  bool frozen = false;  // AssignGroups makes its parameters untrainable
};

// A value of the update that makes the count of applied steps `count` (1, 2, ...). Pure: it may be
// asked for counts that never come.
using Schedule = std::function<double(int64_t count)>;

// What the trainer multiplies its loss by, and how that changes. A step in which any element of any
// rank's gradient is inf or NaN changes no weight, moment or count, and counts as skipped (but for
// Config::check_overflow).
//   kStatic:     `scale` throughout
//   kDynamic:    DeepSpeed's DynamicLossScaler: starts at `scale`; an overflow uses up one of
//                `hysteresis`, and halves the scale, not below `minimum`, once one is left; doubles
//                after window + 1 clean steps, then after every `window`, and refills hysteresis
//                then, or after each clean step if `consecutive_hysteresis`. An overflow at the
//                minimum with hysteresis used up stops the run.
//   kGradScaler: torch.amp.GradScaler: halves at each overflow, doubles after `window` clean steps
enum class LossScaling : uint8_t { kStatic, kDynamic, kGradScaler };

struct LossScale {
  LossScaling kind = LossScaling::kStatic;
  double scale = 1;
  int64_t window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double minimum = 1;
};

// Where memory of the library is while nothing computes with it. kHost: memory of the host, pinned
// where the device wants it. kNvme: a file.
enum class Place : uint8_t { kDevice, kHost, kNvme };

// Gradients stored with offloaded states leave the device in every pass. Those of earlier passes
// are fetched back to be added to, where the sum of all ranks is made: a stored gradient is rounded
// as it is on the device, and the norm is taken there.
struct Offload {
  Place optimizer = Place::kDevice;   // masters and moments; stages 1 to 3
  Place parameters = Place::kDevice;  // slices of weights: stage 3, with an offloaded optimizer
  // Of each slice the first ceil(ratio x slice / 128) x 128 elements are offloaded and updated on
  // the host; the rest stays on the device and is updated there, at the same time. Above 0, at
  // most 1.
  double ratio = 1;
  // Whether stored gradients are offloaded with the states. False, and in stage 1: they stay on the
  // device and leave once, after the last pass.
  bool gradients = true;
  // A folder on the disk for kNvme; each run makes one of its own in it, and removes it.
  std::string nvme_path;
  // Elements of a slice that move and are updated at once, a multiple of 2048; and how many such
  // pieces may be on their way.
  int64_t piece_elements = 1 << 20;
  int64_t buffer_count = 4;
  bool pin_memory = true;  // false: memory of the host stays pageable
};

struct Config {
  int stage =
      3;  // 0: everything on every rank; 1: states, 2: and gradients, 3: and weights sharded

  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;  // used where `schedule` is empty
  Schedule schedule;
  double beta1 = 0.9;       // Adam, AdamW, Lion
  Schedule beta1_schedule;  // replaces beta1, or SGD's momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool bias_correction = true;                // Adam, AdamW
  double momentum = 0;                        // SGD
  bool nesterov = false;                      // SGD
  std::vector<ParameterGroup> groups = {{}};  // Parameter::group indexes it; at most 256
  double clip_norm = 0;                       // limit of the global gradient norm; 0: no clipping
  Schedule clip_schedule;                     // replaces clip_norm
  LossScale loss_scale;
  // Whether inf or NaN in a gradient skips the step. False, with a static loss scale only: they
  // reach masters and weights, and StepResult says so. With nothing clipped either, offloaded units
  // are updated while backward runs (DeepSpeed: bf16.check_grad_overflow false, gradient_clipping
  // 0); then a failure in backward may leave a step half done, a loss weight is given to BeginPass,
  // and after its ReduceGradients of the kTrainLast pass a unit is not acquired again before Step.
  bool check_overflow = true;
  // Steps skipped one after the other that stop the run; 0: never. Dynamic scaling may need many to
  // come down from a high start.
  int64_t max_consecutive_skips = 50;
  // Also looks for inf and NaN in what each rank wrote, before it is added up, so that
  // StepResult names the rank that produced it. Reads the written gradients once more.
  bool check_gradients = false;

  MasterKind master = MasterKind::kF32;
  WeightRounding weight_rounding = WeightRounding::kNearestEven;
  uint64_t rounding_seed = 0;  // MasterKind::kNone

  // What a rank keeps of its gradients between micro-batches: kF32, or the dtype of the weights
  // (any 16-bit value stands for it).
  DType accumulation = DType::kF32;
  // What gradients are sent in; empty: as they are written (with one micro-batch, and in stages 2
  // and 3), else as they are stored.
  std::optional<DType> communication;
  // Gradients are divided by this before they are sent, and the sum is multiplied by it: room
  // against overflow in fp16. Stored gradients are the divided ones.
  double gradient_predivide_factor = 1;
  int64_t reduce_bucket_size = 500'000'000;  // elements reduced in one call, over all ranks
  int prefetch = 1;                          // stage 3: units gathered ahead
  Offload offload;
  ReductionKind reduction =
      ReductionKind::kOrdered;  // the same bits everywhere, or the group's own

  // Memory of the host, in bytes, that SaveCheckpoint copies this rank's state into, so that
  // training goes on while it is written. What does not fit is written before SaveCheckpoint
  // returns. 0: all of it is, and the checkpoint is complete then. At least 1 MiB otherwise.
  int64_t checkpoint_memory = 0;
  // Whether SaveWeights may write whole weights in stage 3.
  bool gather_16bit_weights_on_model_save = true;

  // Fills slots with NaN before each hand-out, so that whatever is read unwritten shows.
  bool poison_slots = false;
};

// "adamw", "fp32", "nearest_away", "grad_scaler", ...: for messages and files.
const char* Name(OptimizerKind kind);
const char* Name(MasterKind kind);
const char* Name(WeightRounding rounding);
const char* Name(LossScaling kind);
const char* Name(Place place);  // "device", "cpu", "nvme", as in DeepSpeed's file

// What of `offload` there is in a stage: nothing in stage 0, weights in stage 3 only. For whoever
// compares stages.
Offload OffloadOfStage(Offload offload, int stage);

// kInvalidArgument names the field, its value and what would be right.
absl::Status Validate(const Config& config);

}  // namespace zero
