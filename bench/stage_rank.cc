#include "bench/stage_rank.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "kernels/kernels.h"

namespace zero::bench {

Model StageModel::Make() const {
  Model model;
  for (int64_t u = 0; u < units; ++u) {
    Parameter parameter;
    parameter.name = absl::StrCat("unit", u, ".weight");
    parameter.shape = {elements};
    parameter.dtype = dtype;
    Unit unit;
    unit.name = absl::StrCat("unit", u);
    unit.parameters = {std::move(parameter)};
    model.units.push_back(std::move(unit));
  }
  return model;
}

float InitialWeight(int64_t element) { return static_cast<float>(element % 251 - 125) / 128; }

Source InitialWeights() {
  return [](const Parameter&, int64_t first, absl::Span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = InitialWeight(first + static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<std::unique_ptr<StageRank>> StageRank::Create(const StageModel& model, int stage,
                                                             ThreadPool* pool, ProcessGroup* group,
                                                             int64_t checkpoint_memory) {
  HostDevice::Options device;
  device.pool = pool;
  Config config = ConfigOf(model, stage);
  config.checkpoint_memory = checkpoint_memory;
  return Create(model, config, device, group);
}

absl::StatusOr<std::unique_ptr<StageRank>> StageRank::Create(const StageModel& model,
                                                             const Config& config,
                                                             const HostDevice::Options& device,
                                                             ProcessGroup* group) {
  std::unique_ptr<StageRank> rank(new StageRank(model, group, device));
  ZERO_RETURN_IF_ERROR(rank->Initialise(config));
  return rank;
}

Config StageRank::ConfigOf(const StageModel& model, int stage) {
  Config config;
  config.stage = stage;
  config.accumulation = model.dtype;
  return config;
}

absl::Status StageRank::Initialise(const Config& config) {
  ZERO_ASSIGN_OR_RETURN(optimizer_,
                        ShardedOptimizer::Create(config, model_.Make(), &device_, group_));
  ZERO_ASSIGN_OR_RETURN(stream_, device_.CreateStream(absl::StrCat("trainer-", group_->rank())));
  return optimizer_->Write(State::kWeight, InitialWeights());
}

absl::Status StageRank::EnqueueCompute(double seconds) const {
  if (seconds <= 0) return absl::OkStatus();
  return stream_->Enqueue("compute", [seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return absl::OkStatus();
  });
}

absl::StatusOr<Pending<StepResult>> StageRank::EnqueueStep(const Compute& compute) {
  const int units = static_cast<int>(model_.units);
  ++steps_;
  ZERO_RETURN_IF_ERROR(optimizer_->BeginPass(Pass::kTrainLast));
  for (int u = 0; u < units; ++u) {
    ZERO_RETURN_IF_ERROR(optimizer_->AcquireWeights(u, *stream_).status());
    ZERO_RETURN_IF_ERROR(EnqueueCompute(compute.forward));
    ZERO_RETURN_IF_ERROR(optimizer_->ReleaseWeights(u, *stream_));
  }
  for (int u = units - 1; u >= 0; --u) {
    ZERO_RETURN_IF_ERROR(optimizer_->AcquireWeights(u, *stream_).status());
    ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer_->AcquireGradients(u, *stream_));
    ZERO_RETURN_IF_ERROR(EnqueueCompute(compute.backward));
    const float value = static_cast<float>((steps_ * 5 + u * 3 + group_->rank()) % 7 - 2) / 64;
    ZERO_RETURN_IF_ERROR(Fill(*stream_, gradients.data[0], model_.dtype, value, model_.elements));
    ZERO_RETURN_IF_ERROR(optimizer_->ReduceGradients(u, *stream_));
    ZERO_RETURN_IF_ERROR(optimizer_->ReleaseWeights(u, *stream_));
  }
  return optimizer_->Step();
}

absl::Status StageRank::ComputeOnly(const Compute& compute) {
  if (scratch_.bytes() == 0) {
    ZERO_ASSIGN_OR_RETURN(scratch_, device_.Allocate(model_.elements * SizeOf(model_.dtype),
                                                     MemoryCategory::kOther, "a unit's gradient"));
  }
  for (int64_t u = 0; u < model_.units; ++u) ZERO_RETURN_IF_ERROR(EnqueueCompute(compute.forward));
  for (int64_t u = 0; u < model_.units; ++u) {
    ZERO_RETURN_IF_ERROR(EnqueueCompute(compute.backward));
    ZERO_RETURN_IF_ERROR(Fill(*stream_, scratch_.data(), model_.dtype, 0.5f, model_.elements));
  }
  return stream_->Synchronize();
}

absl::Status StageRank::Step(double compute_seconds) {
  const Compute compute = {compute_seconds / static_cast<double>(model_.units), 0};
  ZERO_RETURN_IF_ERROR(EnqueueStep(compute).status());
  return Finish();
}

absl::StatusOr<std::vector<float>> StageRank::Weights(int unit) {
  std::vector<float> weights(static_cast<size_t>(model_.elements));
  ZERO_RETURN_IF_ERROR(optimizer_->Gather(State::kWeight, absl::StrCat("unit", unit, ".weight"),
                                          absl::MakeSpan(weights)));
  return weights;
}

absl::Status StageRank::Meet() {
  ZERO_RETURN_IF_ERROR(group_->Barrier(*stream_, "bench"));
  return stream_->Synchronize();
}

double MovedBytes(const Plan& plan) {
  const double ranks = plan.world_size;
  const bool exchange = plan.world_size > 1;
  double bytes = 0;
  for (const UnitLayout& unit : plan.layout.units) {
    for (const Segment& segment : unit.segments) {
      if (!segment.trainable) continue;
      const double whole = static_cast<double>(segment.elements);
      const double slice = static_cast<double>(segment.slice);
      const double updated = plan.config.stage == 0 ? whole : slice;
      const double written = static_cast<double>(SizeOf(segment.dtype));
      const double stored = static_cast<double>(SizeOf(StoredType(plan.config, segment)));
      bytes += written * whole;                                 // the trainer fills the gradient
      if (exchange) bytes += 2 * written * whole;               // the exchange: read, and written
      if (exchange) bytes += written * whole + stored * slice;  // the parts added up
      bytes += stored * slice;                                  // the norm
      // AdamW: gradient, master and two moments read; master, moments and 16-bit weight written.
      bytes += (stored + 2 * 3 * 4 + (segment.dtype == DType::kF32 ? 0 : written)) * updated;
      // What the other ranks computed, copied to its place.
      const double others = whole - slice;
      if (plan.config.stage == 0) bytes += 2 * stored * others;
      if (plan.config.stage == 1 || plan.config.stage == 2) bytes += 2 * written * others;
    }
  }
  // Stage 3 copies all slices of a unit, its own too, into a slot.
  if (plan.config.stage == 3) bytes += 2 * ranks * static_cast<double>(plan.first_pass_gathered);
  return bytes;
}

}  // namespace zero::bench
