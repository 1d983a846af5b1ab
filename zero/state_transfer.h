// State in and out of the device, in logical coordinates (parameter, first element).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/optimizer_states.h"
#include "zero/sharded_optimizer.h"
#include "zero/stored_as.h"
#include "zero/weight_store.h"

namespace zero {

// Moves kTransferElements at a time through staging memory that is allocated once.
class StateTransfer {
 public:
  static absl::StatusOr<StateTransfer> Create(const Context& context, WeightStore* weights,
                                              GradientStore* gradients, OptimizerStates* states);

  // See ShardedOptimizer.
  absl::Status Write(State state, const Source& source);
  absl::Status Read(State state, const Stream& stream, const Sink& sink);
  absl::Status Gather(State state, const std::string& name, absl::Span<float> out);

 private:
  // Where one segment's elements of a state lie.
  struct Place {
    char* data = nullptr;  // null: this parameter has no such state
    StoredAs stored = StoredAs::kF32;
    bool sliced = false;  // data is this rank's slice
  };
  StateTransfer(const Context* context, WeightStore* weights, GradientStore* gradients,
                OptimizerStates* states)
      : context_(context), weights_(weights), gradients_(gradients), states_(states) {}

  Place Find(State state, int unit, int segment) const;
  // What the values of a state are made of: masters that are split are two.
  std::vector<Place> PartsOf(State state, int unit, int segment) const;
  // Everything that follows from the values of a state: itself, and what must agree with it.
  std::vector<Place> WrittenWith(State state, int unit, int segment) const;
  absl::Status WriteParameter(State state, int unit, int parameter, const Source& source);
  absl::Status ReadParameter(State state, int unit, int parameter, const Stream& stream,
                             const Sink& sink);
  absl::Status GatherParameter(State state, int unit, int parameter, absl::Span<float> out);
  // Device to host, as fp32 in staging: from[k] has n elements of parts[k]. Waits.
  absl::StatusOr<absl::Span<const float>> Fetch(const Stream& stream, absl::Span<const Place> parts,
                                                absl::Span<const char* const> from, int64_t n);

  const Context* context_;
  WeightStore* weights_;
  GradientStore* gradients_;
  OptimizerStates* states_;
  Buffer device_staging_;  // [kTransferElements] of up to 4 bytes
  Buffer host_values_;     // fp32, likewise
  Buffer host_raw_;        // as stored, likewise
};

}  // namespace zero
