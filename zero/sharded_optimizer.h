// The sharded optimizer: ZeRO stages 0 to 3 behind one set of verbs.
//
//   BeginPass(kTrainLast)
//   for each unit forward:   AcquireWeights, compute, ReleaseWeights
//   for each unit backward:  AcquireWeights, AcquireGradients, compute, ReduceGradients,
//                            ReleaseWeights
//   Step
//
// One object is one rank of one process group and is driven by one thread. Verbs marked [C] are
// collective: every rank calls them in the same order. A verb enqueues and returns; it never waits
// for the device except where it says so. Each verb takes the stream that the trainer computes on;
// it may differ from call to call, and within a unit: each use starts after the one before. Misuse
// is kFailedPrecondition naming unit and verb, with nothing changed. A failed group or stream: its
// first error, from every later verb.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "zero/config.h"
#include "zero/model.h"
#include "zero/offload/offload_report.h"
#include "zero/pending.h"
#include "zero/plan.h"
#include "zero/save/checkpoint.h"
#include "zero/save/weights.h"

namespace zero {

// kTrain: a micro-batch; kTrainLast: the last one before Step; kEvaluate: forward only, refuses the
// gradient verbs and leaves nothing behind. Micro-batches are not counted ahead of time.
enum class Pass : uint8_t { kTrain, kTrainLast, kEvaluate };

enum class State : uint8_t { kWeight, kGradient, kMaster, kMoment1, kMoment2 };
const char* Name(State state);

// The trainer's own device memory, laid out by the plan (Plan::weight_offset, gradient_offset),
// 64-byte aligned; outlives the optimizer. Create takes the weights as they are, the same on every
// rank, and makes the masters from them; it zeroes the gaps between them, and the gradients. Where
// addresses are given, one for each parameter in the order of the model, they are compared with the
// plan.
struct Adopted {
  void* weights = nullptr;    // stages 0 to 2: Plan::weights.bytes
  void* gradients = nullptr;  // stages 0 and 1: Plan::gradients.bytes
  std::vector<const void*> weight_addresses;
  std::vector<const void*> gradient_addresses;
};

// data[i]: parameter i of the unit, in its dtype. Valid on the stream until ReleaseWeights; the
// same addresses in every step.
struct Weights {
  absl::Span<const void* const> data;
};

// data[i]: where to write the gradient of parameter i, in the parameter's dtype; null if frozen.
// Overwrite it, or add to it when `accumulate`.
struct Gradients {
  absl::Span<void* const> data;
  bool accumulate = false;
};

struct StepResult {
  int64_t step = 0;             // calls of Step
  int64_t applied_steps = 0;    // those that changed the weights
  bool applied = false;         // false: everything stays, as a gradient was not finite
  double gradient_norm = 0;     // of the applied gradient, before clipping
  double clip_coefficient = 1;  // min(1, clip_norm / (norm + 1e-6))
  double learning_rate = 0;     // of this step, before group factors
  double loss_scale = 1;        // that the loss was multiplied by
  double next_loss_scale = 1;   // of the next step
  double loss_weight = 0;       // the divisor without the loss scale
  int64_t skipped_steps = 0;    // so far
  int64_t consecutive_skips = 0;
  int64_t non_finite = 0;        // elements of the gradient that are inf or NaN
  std::string first_non_finite;  // the first such parameter; empty when all are finite
  int owner = -1;                // the rank whose slice that element is in
  int producer = -1;  // Config::check_gradients: the rank that wrote the first inf or NaN
};

// Called for runs of a parameter's elements, row-major from `first`.
using Source = std::function<absl::Status(const Parameter&, int64_t first, absl::Span<float> out)>;
using Sink =
    std::function<absl::Status(const Parameter&, int64_t first, absl::Span<const float> values)>;

// After an error that is not misuse, of a verb or of the work that it enqueued, the group is dead,
// and every later verb returns that error: kDataLoss if a step may have changed something and not
// all, so that only older state is whole; otherwise weights, masters and moments are as before the
// step, and Read still gives what this rank owns of them. Misuse (kInvalidArgument,
// kFailedPrecondition, kNotFound) changes nothing.
class ShardedOptimizer {
 public:
  // [C] Allocates everything that training will need, as MakePlan says, and zeroes it. `device` and
  // `group` outlive the optimizer. kResourceExhausted: nothing stays allocated. kInvalidArgument on
  // every rank: configurations or models of two ranks differ; both and what differs are named.
  static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> Create(const Config& config, Model model,
                                                                  Device* device,
                                                                  ProcessGroup* group,
                                                                  Adopted adopted = {});
  // Waits for the work enqueued so far, the trainer's between Acquire and Release included, on
  // streams that still exist.
  virtual ~ShardedOptimizer() = default;

  // Starts a forward. Units that the pass before left unreported are reduced now, as zeros. With
  // kTrainLast, `loss_weight` is that of Step where it is known by now, else 0.
  virtual absl::Status BeginPass(Pass pass, double loss_weight = 0) = 0;  // [C]

  // Makes `stream` wait until the unit's weights are whole. Stage 3: gathers the unit unless it is
  // live, then starts the gathers of the next `prefetch` units in the direction of the pass.
  // Recompute and backward of a unit may share one Acquire. A unit may be acquired again, on
  // another stream say, before it is released; it takes as many Releases, and each ends its
  // stream's use.
  virtual absl::StatusOr<Weights> AcquireWeights(int unit,
                                                 const Stream& stream) = 0;  // [C] stage 3
  // The weights may change, or their slot be used again, after the work enqueued so far.
  virtual absl::Status ReleaseWeights(int unit, const Stream& stream) = 0;

  // Makes `stream` wait until the unit's gradients may be written. Units may be acquired ahead of
  // Reduce as long as their slots last: in stages 2 and 3, and where a stored gradient is not what
  // is written, there are two. A unit that the trainer has passed over by then is reduced now, as
  // zeros; so this too must be called in the same order on every rank.
  virtual absl::StatusOr<Gradients> AcquireGradients(int unit, const Stream& stream) = 0;
  // The unit's gradients are written by the work enqueued so far, except those of the parameters in
  // `unwritten` (indices into Unit::parameters), which count as zero. In reverse order of units; a
  // unit passed over counts as zeros. Where units are updated during backward (Config::
  // check_overflow) it may wait as Step does.
  virtual absl::Status ReduceGradients(int unit, const Stream& stream,
                                       absl::Span<const int> unwritten = {}) = 0;  // [C]

  // Updates the weights with (sum of gradients over ranks and micro-batches) / (loss scale x
  // divisor). The divisor is the sum over ranks of `loss_weight` (valid tokens), given here or to
  // BeginPass, where that is positive, else ranks x micro-batches. After a kTrainLast pass. Waits
  // if two results are outstanding. An inf or NaN anywhere skips the step on every rank: weights,
  // moments and the count of applied steps stay. Where the loss scale cannot fall further, or after
  // Config::max_consecutive_skips, the run stops: the result of that step, and all later ones, are
  // kOutOfRange with what was found, and nothing changes any more.
  virtual absl::StatusOr<Pending<StepResult>> Step(double loss_weight = 0) = 0;  // [C]

  // One float in device memory: what the trainer multiplies its loss by. A stream may read it after
  // its first AcquireWeights or AcquireGradients of a training pass, until Step.
  virtual const float* loss_scale() const = 0;

  // State in logical coordinates (parameter, first element), whatever the stage and world size.
  // Between passes, or kFailedPrecondition; each waits for the device.
  //
  // Write asks `source` for what this rank stores. kWeight: rounds to the working dtype and makes
  // the masters from that; kMaster: sets the masters and rounds them to the weights. The two are
  // the same for fp32 parameters. `source` must give every rank the same value for an element.
  // kGradient: kInvalidArgument. When it fails, `source` included, what was to be written is half
  // changed: everything but writing it again is kDataLoss.
  virtual absl::Status Write(State state, const Source& source) = 0;  // [C]
  // Calls `sink` with what this rank owns: its slice of every unit, frozen weights included. Each
  // element is owned by one rank. kGradient is collective, as Gather is: units that the pass left
  // unreported are reduced first.
  virtual absl::Status Read(State state, const Sink& sink) = 0;
  // The whole parameter, on every rank. kNotFound names the nearest parameter.
  virtual absl::Status Gather(State state, const std::string& name,
                              absl::Span<float> out) = 0;  // [C]

  // Checkpoints: everything that a run needs to go on, bit for bit; `folder`/step-00000100 after
  // the 100th Step. Between steps, or kFailedPrecondition. Errors are the same on every rank,
  // change nothing and leave the group as it was; a save that fails leaves the older ones.
  //
  // [C] Copies the state of this moment to memory of the host, in order with the work enqueued so
  // far, and writes it on a thread of its own: one file for each rank, into a folder that all ranks
  // see, which gets its name when every file is on the disk. Returns when the rest fits
  // Config::checkpoint_memory; with none, when the checkpoint is complete. Else it becomes so in a
  // later Step, or in FinishCheckpoint; the Pending says when, or why not (its Get does not wait on
  // the thread that drives the optimizer). One at a time: a second call finishes the first. One of
  // the same step is replaced; a folder is one run's. kFailedPrecondition names a master that is
  // inf or NaN; kInvalidArgument an attribute that is no UTF-8 text.
  virtual absl::StatusOr<Pending<CheckpointReport>> SaveCheckpoint(
      const std::string& folder, const CheckpointOptions& options = {}) = 0;
  // [C] Waits until the checkpoint that is being written is complete, and returns its error.
  virtual absl::Status FinishCheckpoint() = 0;
  // [C] `path` of one checkpoint, whatever world size, stage, buckets or kind of master wrote it.
  // Each rank reads what it stores, and verifies it; ranks wait for the slowest, at most the
  // group's deadline. kInvalidArgument lists everything that the model has otherwise, with nothing
  // changed. What fails later (kDataLoss: a damaged file) leaves the state half loaded: until one
  // is loaded, everything else is kDataLoss.
  virtual absl::StatusOr<CheckpointLoaded> LoadCheckpoint(const std::string& path) = 0;

  // Writes the weights, frozen ones too and aliases not, as a folder that Hugging Face's libraries
  // read: model.safetensors, or shards and their index. Between passes. Where all ranks see the
  // same folder each writes its own ranges of the files, and nothing but short texts is sent; else
  // the first rank of those that share one receives everything, through the staging memory, and
  // writes it. Everything lies on the disk, checked, in a folder ".saving-..." in `folder` before
  // it is renamed into place, so that `folder` may be the one that the weights were loaded from;
  // one save at a time may use a folder. Every rank gets the error of one. What the disk refuses
  // (space, quota, permission, I/O) changes no file and ends nothing: training can go on.
  // kInvalidArgument: options that are wrong or differ, a finite value that is inf in `dtype`.
  // kFailedPrecondition: stage 3 where Config::gather_16bit_weights_on_model_save is false.
  virtual absl::StatusOr<WeightsSaved> SaveWeights(
      const std::string& folder, const SaveWeightsOptions& options = {}) = 0;  // [C]
  // Sets masters and weights, as Write of kMaster does, from such a folder; each rank reads what it
  // stores. Each parameter must be there once, under its name or an alias, or under several with
  // the same bytes. kInvalidArgument lists all tensors that are missing, unknown, of another shape,
  // or not F32, BF16 or F16; kNotFound, kDataLoss: files are missing or damaged. Nothing has
  // changed then, on any rank. A value that is inf or NaN is refused when it is read, by tensor and
  // element; then, and when the disk fails, everything but LoadWeights and writing weights or
  // masters again is kDataLoss.
  virtual absl::StatusOr<WeightsLoaded> LoadWeights(
      const std::string& folder, const LoadWeightsOptions& options = {}) = 0;  // [C]

  // Waits for everything enqueued; the first error so far.
  virtual absl::Status Finish() = 0;

  virtual const Plan& plan() const = 0;  // what was promised
  virtual const Model& model() const = 0;
  // What is used: {"memory": {category: {"current", "peak"}}, "wire": {name: {"calls", "bytes"}},
  // "link": {"to_device", "from_device"}: bytes of copies enqueued between the device and memory of
  // the host, "disk": {"read", "written"}: bytes of offloaded state, "host_waits", "reduction":
  // which kind and why}. Any thread.
  virtual std::string accounting_json() const = 0;
  // Where the time of offloaded steps went and what they moved; zeros where nothing is offloaded.
  // From any thread.
  virtual OffloadReport offload_report() const = 0;
  // What a program should say once: memory that could not be pinned, disks that are reached in a
  // slower way, what dead runs had left. One sentence each.
  virtual std::vector<std::string> notes() const = 0;
};

}  // namespace zero
