// Masters and moments, and the update that reads gradients and writes weights.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernels.h"
#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/step_controller.h"
#include "zero/weight_store.h"

namespace zero {

class OptimizerStates {
 public:
  static absl::StatusOr<OptimizerStates> Create(const Context& context);

  // Enqueues the making of masters from weights.
  absl::Status CopyWeights(const WeightStore& weights) const;

  // Enqueues the update of one unit, on what this rank holds states for.
  absl::Status Update(int unit, WeightStore& weights, GradientStore& gradients,
                      const StepController& step) const;

  const SegmentBlock& masters() const { return masters_; }
  const SegmentBlock& moment1() const { return moment1_; }
  const SegmentBlock& moment2() const { return moment2_; }

 private:
  explicit OptimizerStates(const Context* context) : context_(context) {}
  // What one update kernel takes of a segment: elements from the first one that is held.
  struct Piece {
    int64_t first = 0;
    int64_t count = 0;
    uint32_t random_key = 0;    // of the parameter
    int64_t first_element = 0;  // within the parameter
  };
  std::vector<Piece> PiecesOf(int unit, int segment) const;
  // `weight`: of the first element that is held.
  MasterMemory MasterOf(int unit, int segment, const Piece& piece, char* weight) const;
  absl::Status UpdatePiece(int unit, int segment, const Piece& piece, const WeightStore& weights,
                           const GradientStore& gradients, const StepController& step) const;
  absl::Status UpdateSegment(int unit, int segment, const WeightStore& weights,
                             const GradientStore& gradients, const StepController& step) const;

  const Context* context_;
  SegmentBlock masters_;
  SegmentBlock moment1_;
  SegmentBlock moment2_;
};

}  // namespace zero
