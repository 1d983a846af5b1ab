// The stages: which of weights, gradients and states are whole on every rank, and which are sliced.
#pragma once

#include <memory>

#include "zero/optimizer_core.h"

namespace zero {

// Everything whole: plain data parallelism. Gradients are summed to every rank, and every rank
// updates everything.
class Stage0 : public OptimizerCore {
 public:
  Stage0(Plan plan, Model model) : OptimizerCore(std::move(plan), std::move(model)) {}

 protected:
  absl::StatusOr<std::unique_ptr<WeightStore>> MakeWeights(const Parts&, const Adopted&) override;
  absl::StatusOr<std::unique_ptr<GradientStore>> MakeGradients(const Parts&,
                                                               const Adopted&) override;
};

// States sliced (P_os): a rank updates its slices, and gathers the updated weights.
class Stage1 : public Stage0 {
 public:
  using Stage0::Stage0;

 protected:
  absl::StatusOr<std::unique_ptr<WeightStore>> MakeWeights(const Parts&, const Adopted&) override;
  absl::StatusOr<std::unique_ptr<GradientStore>> MakeGradients(const Parts&,
                                                               const Adopted&) override;
};

// Stored gradients sliced as well (P_os+g): reduced in every pass.
class Stage2 : public Stage1 {
 public:
  using Stage1::Stage1;

 protected:
  absl::StatusOr<std::unique_ptr<GradientStore>> MakeGradients(const Parts&,
                                                               const Adopted&) override;
};

// Weights sliced as well (P_os+g+p): gathered unit by unit while they are used.
class Stage3 : public Stage2 {
 public:
  using Stage2::Stage2;

 protected:
  absl::StatusOr<std::unique_ptr<WeightStore>> MakeWeights(const Parts&, const Adopted&) override;
};

}  // namespace zero
