// Stands in for the sharded optimizer: keeps weights and gradients whole, writes down the verbs and
// refuses those that come out of order.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/examples/tensor.h"
#include "zero/sharded_optimizer.h"

namespace zero::llama {

class PlainOptimizer : public ShardedOptimizer {
 public:
  // Weights are random; norms near 1.
  PlainOptimizer(Model model, unsigned seed) : model_(std::move(model)) {
    for (const Unit& unit : model_.units) {
      UnitState& state = units_.emplace_back();
      for (const Parameter& parameter : unit.parameters) {
        size_t n = 1;
        for (const int64_t size : parameter.shape) n *= size;
        Doubles values = RandomValues(n, ++seed, 0.25);
        if (parameter.shape.size() == 1) {
          for (double& value : values) value += 1;
        }
        state.weights.emplace_back(values, parameter.dtype);
        state.gradients.emplace_back(n, parameter.dtype);  // NaN
      }
      for (const Tensor& tensor : state.weights) state.weight_data.push_back(tensor.data());
      for (Tensor& tensor : state.gradients) state.gradient_data.push_back(tensor.data());
    }
  }

  std::map<std::string, Doubles> weights() const { return Values(&UnitState::weights); }
  std::map<std::string, Doubles> gradients() const { return Values(&UnitState::gradients); }
  // The next pass overwrites.
  void ForgetGradients() {
    for (UnitState& state : units_) state.written = false;
  }
  void set_loss_scale(float scale) { loss_scale_.Set(0, scale); }
  std::vector<std::string> verbs;

  absl::Status BeginPass(Pass pass, double) override {
    pass_ = pass;
    verbs.push_back("begin");
    reduced_ = static_cast<int>(units_.size());
    for (UnitState& state : units_) {
      if (state.acquired) return Misuse("BeginPass with weights acquired");
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Weights> AcquireWeights(int unit, const Stream&) override {
    verbs.push_back("weights " + model_.units[unit].name);
    if (std::exchange(units_[unit].acquired, true)) return Misuse("acquired twice");
    return Weights{units_[unit].weight_data};
  }
  absl::Status ReleaseWeights(int unit, const Stream&) override {
    verbs.push_back("release " + model_.units[unit].name);
    return std::exchange(units_[unit].acquired, false) ? absl::OkStatus() : Misuse("not acquired");
  }
  absl::StatusOr<Gradients> AcquireGradients(int unit, const Stream&) override {
    verbs.push_back("gradients " + model_.units[unit].name);
    if (pass_ == Pass::kEvaluate) return Misuse("gradients in evaluation");
    if (!units_[unit].acquired) return Misuse("gradients without weights");
    return Gradients{units_[unit].gradient_data, std::exchange(units_[unit].written, true)};
  }
  absl::Status ReduceGradients(int unit, const Stream&, absl::Span<const int>) override {
    verbs.push_back("reduce " + model_.units[unit].name);
    if (unit >= reduced_) return Misuse("reduced out of order");
    reduced_ = unit;
    return absl::OkStatus();
  }
  absl::StatusOr<Pending<StepResult>> Step(double) override { return Misuse("Step"); }
  const float* loss_scale() const override { return loss_scale_.floats(); }
  absl::Status Write(State, const Source&) override { return Misuse("Write"); }
  absl::Status Read(State, const Sink&) override { return Misuse("Read"); }
  absl::Status Gather(State, const std::string&, absl::Span<float>) override {
    return Misuse("Gather");
  }
  absl::StatusOr<Pending<CheckpointReport>> SaveCheckpoint(const std::string&,
                                                           const CheckpointOptions&) override {
    return Misuse("SaveCheckpoint");
  }
  absl::Status FinishCheckpoint() override { return Misuse("FinishCheckpoint"); }
  absl::StatusOr<CheckpointLoaded> LoadCheckpoint(const std::string&) override {
    return Misuse("LoadCheckpoint");
  }
  absl::StatusOr<WeightsSaved> SaveWeights(const std::string&, const SaveWeightsOptions&) override {
    return Misuse("SaveWeights");
  }
  absl::StatusOr<WeightsLoaded> LoadWeights(const std::string&,
                                            const LoadWeightsOptions&) override {
    return Misuse("LoadWeights");
  }
  absl::Status Finish() override { return absl::OkStatus(); }
  const Plan& plan() const override { std::abort(); }
  const Model& model() const override { return model_; }
  std::string accounting_json() const override { return "{}"; }
  OffloadReport offload_report() const override { return {}; }
  std::vector<std::string> notes() const override { return {}; }

 private:
  struct UnitState {
    std::vector<Tensor> weights, gradients;
    std::vector<const void*> weight_data;
    std::vector<void*> gradient_data;
    bool acquired = false, written = false;
  };

  static absl::Status Misuse(const std::string& what) {
    return absl::FailedPreconditionError(what);
  }

  std::map<std::string, Doubles> Values(std::vector<Tensor> UnitState::*which) const {
    std::map<std::string, Doubles> values;
    for (size_t u = 0; u < units_.size(); ++u) {
      for (size_t i = 0; i < model_.units[u].parameters.size(); ++i) {
        values[model_.units[u].parameters[i].name] = (units_[u].*which)[i].values();
      }
    }
    return values;
  }

  const Model model_;
  std::vector<UnitState> units_;
  Pass pass_ = Pass::kTrain;
  int reduced_ = 0;
  Tensor loss_scale_{Doubles{1}, DType::kF32};
};

}  // namespace zero::llama
