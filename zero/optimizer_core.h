// The verbs: their order, their errors, and the calls into the stores that do the work.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/offload/backward_updates.h"
#include "zero/offload/offload_pipeline.h"
#include "zero/offload/offload_store.h"
#include "zero/offload/offload_streams.h"
#include "zero/optimizer_states.h"
#include "zero/rank_exchange.h"
#include "zero/save/checkpoint_loader.h"
#include "zero/save/checkpoint_saver.h"
#include "zero/sharded_optimizer.h"
#include "zero/state_transfer.h"
#include "zero/step_controller.h"
#include "zero/step_progress.h"
#include "zero/weight_store.h"

namespace zero {

// All stages. They differ in which stores they are made of (stages.h).
class OptimizerCore : public ShardedOptimizer {
 public:
  ~OptimizerCore() override;

  absl::Status BeginPass(Pass pass, double loss_weight) override;
  absl::StatusOr<Weights> AcquireWeights(int unit, const Stream& stream) override;
  absl::Status ReleaseWeights(int unit, const Stream& stream) override;
  absl::StatusOr<Gradients> AcquireGradients(int unit, const Stream& stream) override;
  absl::Status ReduceGradients(int unit, const Stream& stream,
                               absl::Span<const int> unwritten) override;
  absl::StatusOr<Pending<StepResult>> Step(double loss_weight) override;
  const float* loss_scale() const override { return step_->loss_scale(); }
  absl::Status Write(State state, const Source& source) override;
  absl::Status Read(State state, const Sink& sink) override;
  absl::Status Gather(State state, const std::string& name, absl::Span<float> out) override;
  absl::StatusOr<Pending<CheckpointReport>> SaveCheckpoint(
      const std::string& folder, const CheckpointOptions& options) override;
  absl::Status FinishCheckpoint() override;
  absl::StatusOr<CheckpointLoaded> LoadCheckpoint(const std::string& path) override;
  absl::StatusOr<WeightsSaved> SaveWeights(const std::string& folder,
                                           const SaveWeightsOptions& options) override;
  absl::StatusOr<WeightsLoaded> LoadWeights(const std::string& folder,
                                            const LoadWeightsOptions& options) override;
  absl::Status Finish() override;
  const Plan& plan() const override { return plan_; }
  const Model& model() const override { return model_; }
  std::string accounting_json() const override;
  std::vector<std::string> notes() const override;
  OffloadReport offload_report() const override {
    return pipeline_ == nullptr ? OffloadReport() : pipeline_->report();
  }

  // Streams, scalars, states and everything that does not depend on the stage; then the stores.
  absl::Status Initialise(Device* device, ProcessGroup* group, const Adopted& adopted);

 protected:
  OptimizerCore(Plan plan, Model model) : plan_(std::move(plan)), model_(std::move(model)) {}
  // What the stores are made of.
  struct Parts {
    const Context& context;
    OrderedReduction* reduction = nullptr;
    NormMemory norms;
    OffloadPipeline* pipeline = nullptr;  // null: nothing is offloaded
  };
  virtual absl::StatusOr<std::unique_ptr<WeightStore>> MakeWeights(const Parts& parts,
                                                                   const Adopted& adopted) = 0;
  virtual absl::StatusOr<std::unique_ptr<GradientStore>> MakeGradients(const Parts& parts,
                                                                       const Adopted& adopted) = 0;

 private:
  // The first error so far. Waits only for what a failure leaves to drain.
  absl::Status Health();
  // What a verb ends with. Misuse is found before anything is enqueued; any other error leaves half
  // a verb behind, and the other ranks wait for the rest of it.
  absl::Status Guarded(const absl::Status& status);
  // Aborts the group and finds out what the failure left. Returns the error from now on.
  absl::Status Break(const absl::Status& reason);
  absl::Status CheckVerb(const char* verb, int unit, const Stream& stream);
  // Between passes; then waits for the device.
  absl::Status BeginTransfer(const char* verb, State state);
  absl::Status FinishTrainingPass();
  // What of a step's loss weight was given to BeginPass, or to Step, or to both.
  absl::StatusOr<double> LossWeight(double given_to_step) const;
  absl::Status RequireWritten() const;
  // kFailedPrecondition where a training pass has begun, or a unit is not released.
  absl::Status RequireStepEnd(const char* verb) const;
  // From the first byte that changes on.
  absl::Status Load(CheckpointLoader& loader);
  // A checksum of the weights that every rank has whole, of what their masters were read from, and
  // of the counts.
  absl::StatusOr<std::string> LoadedHash(const CheckpointManifest& manifest);
  absl::Status UpdateAll();
  bool training() const { return pass_.has_value() && *pass_ != Pass::kEvaluate; }

  // Destroyed last to first: streams drain before the memory that they use goes.
  const Plan plan_;
  const Model model_;
  Context context_;
  std::optional<OrderedReduction> reduction_;
  std::unique_ptr<StepController> step_;
  std::optional<StepProgress> progress_;
  std::optional<OptimizerStates> states_;
  std::unique_ptr<OffloadStore> offload_store_;  // null: nothing is offloaded
  std::unique_ptr<OffloadPipeline> pipeline_;    // likewise
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<GradientStore> gradients_;
  std::optional<BackwardUpdates> backward_updates_;
  std::optional<StateTransfer> transfer_;
  std::optional<RankExchange> exchange_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<Stream> communication_;
  std::unique_ptr<Stream> arithmetic_;
  OffloadStreams offload_streams_;

  std::optional<Pass> pass_;     // the pass that has begun, until Step
  int64_t training_passes_ = 0;  // since the last Step
  bool last_pass_begun_ = false;
  double loss_weight_ = 0;  // given to BeginPass
  absl::Status failure_;    // the first; kDataLoss if a step may be half done
  std::optional<State> half_written_;
  bool half_loaded_ = false;
};

}  // namespace zero
