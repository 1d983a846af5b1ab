#include "zero/step_controller.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/misuse.h"
#include "zero/step_outcome.h"

namespace zero {
namespace {

LossScaleRule RuleOf(const Config& config) {
  LossScaleRule rule;
  switch (config.loss_scale.kind) {
    case LossScaling::kStatic:
      rule.kind = LossScaleKind::kStatic;
      break;
    case LossScaling::kDynamic:
      rule.kind = LossScaleKind::kDynamic;
      break;
    case LossScaling::kGradScaler:
      rule.kind = LossScaleKind::kGradScaler;
      break;
  }
  rule.hysteresis = static_cast<int32_t>(config.loss_scale.hysteresis);
  rule.consecutive_hysteresis = config.loss_scale.consecutive_hysteresis ? 1 : 0;
  rule.minimum = static_cast<float>(config.loss_scale.minimum);
  rule.window = config.loss_scale.window;
  return rule;
}

absl::Status BadRow(const char* field, double value, int64_t count, const char* wanted) {
  return Misuse(absl::InvalidArgumentError(absl::StrCat("Step: the ", field, " gives ", value,
                                                        " for applied step ", count,
                                                        ": it must be ", wanted)));
}

absl::Status CheckRow(double rate, double clip_norm, double beta1, int64_t count) {
  if (!(std::isfinite(rate) && rate >= 0)) {
    return BadRow("schedule", rate, count, "finite and not negative");
  }
  if (!(std::isfinite(clip_norm) && clip_norm >= 0)) {
    return BadRow("clip_schedule", clip_norm, count, "0 (no clipping) or a positive limit");
  }
  if (!(beta1 >= 0 && beta1 < 1)) return BadRow("beta1_schedule", beta1, count, "in [0, 1)");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepController>> StepController::Create(const Context& context) {
  std::unique_ptr<StepController> controller(new StepController(context));
  ZERO_RETURN_IF_ERROR(controller->Initialise());
  return controller;
}

StepController::~StepController() {
  for (const auto& outcome : outstanding_) outcome->Resolve();
}

absl::Status StepController::Initialise() {
  const Plan& plan = *context_.plan;
  const Stream& stream = *context_.arithmetic;
  names_ = std::make_shared<const ParameterIndex>(*context_.model, plan.layout);
  ZERO_ASSIGN_OR_RETURN(scalars_, context_.device->Allocate(
                                      layout().bytes, MemoryCategory::kScalars, "step scalars"));
  ZERO_RETURN_IF_ERROR(ZeroNow(context_, scalars_));
  const int64_t groups = static_cast<int64_t>(plan.config.groups.size());
  staging_stride_ = kStepRows * (static_cast<int64_t>(sizeof(StepRow)) +
                                 groups * static_cast<int64_t>(sizeof(GroupScalars))) +
                    static_cast<int64_t>(sizeof(StepRecord));
  ZERO_ASSIGN_OR_RETURN(staging_, context_.device->AllocateHost(kStepRows * staging_stride_,
                                                                MemoryCategory::kHostStaging,
                                                                "step rows and records"));

  if (plan.config.check_gradients) {
    const WrittenCheck::Memory memory = {At<NormPartial>(layout().written_scratch),
                                         At<NormPartial>(layout().written_part),
                                         At<int64_t>(layout().first_written)};
    written_.emplace(context_, names_.get(), memory);
  }

  StepState state;
  state.loss_scale.scale = static_cast<float>(plan.config.loss_scale.scale);
  state.loss_scale.hysteresis = RuleOf(plan.config).hysteresis;
  const int64_t nothing_written = INT64_MAX;
  std::vector<int64_t> bases;
  std::vector<uint8_t> map(static_cast<size_t>(plan.group_map.bytes), 0);
  for (int u = 0; u < context_.units(); ++u) {
    const UnitLayout& unit = context_.unit(u);
    for (int s = 0; s < static_cast<int>(unit.segments.size()); ++s) {
      const Segment& segment = unit.segments[s];
      if (!segment.trainable || segment.elements == 0) continue;
      bases.push_back(names_->base(u, s) + context_.rank() * segment.slice);
    }
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const Run& run = unit.parameters[p];
      const Segment& segment = unit.segments[run.segment];
      const int64_t start = plan.group_map.offsets[u][run.segment];
      if (start < 0) continue;
      const int64_t shift = plan.group_map.sliced ? context_.rank() * segment.slice : 0;
      const int64_t held = plan.group_map.sliced ? segment.slice : segment.elements;
      for (int64_t first = run.first; first < run.first + run.count; first += kParameterAlignment) {
        const int64_t here = first - shift;
        if (here < 0 || here >= held) continue;
        map[static_cast<size_t>(start + here / kParameterAlignment)] =
            static_cast<uint8_t>(context_.model->units[u].parameters[p].group);
      }
    }
  }
  const auto upload = [&]() -> absl::Status {
    ZERO_RETURN_IF_ERROR(context_.device->Copy(stream, device_state(), &state, sizeof(state)));
    ZERO_RETURN_IF_ERROR(context_.device->Copy(stream, At<int64_t>(layout().first_written),
                                               &nothing_written, sizeof(nothing_written)));
    ZERO_RETURN_IF_ERROR(
        context_.device->Copy(stream, At<int64_t>(layout().bases), bases.data(),
                              static_cast<int64_t>(bases.size() * sizeof(int64_t))));
    return context_.device->Copy(stream, group_map(), map.data(), static_cast<int64_t>(map.size()));
  };
  const absl::Status enqueued = upload();
  // The copies read memory of this function, also when the last of them failed.
  const absl::Status copied = stream.Synchronize();
  return enqueued.ok() ? copied : enqueued;
}

NormMemory StepController::norms() {
  return {At<NormPartial>(layout().partials), At<NormPartial>(layout().scratch),
          written_.has_value() ? &*written_ : nullptr};
}

absl::Status StepController::UseLossScale(const Stream& stream) {
  const std::shared_ptr<const Stream> self = stream.reference().lock();
  for (const auto& reader : scale_readers_) {
    if (reader.lock() == self) return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(scale_order_.BeginRead(stream));
  scale_readers_.push_back(stream.reference());
  return absl::OkStatus();
}

absl::Status StepController::EndLossScaleUses() {
  for (const auto& reader : scale_readers_) {
    const std::shared_ptr<const Stream> stream = reader.lock();
    if (stream != nullptr) ZERO_RETURN_IF_ERROR(scale_order_.EndRead(*stream));
  }
  scale_readers_.clear();
  return absl::OkStatus();
}

absl::Status StepController::MakeRoom() {
  while (!outstanding_.empty()) {
    StepOutcome& oldest = *outstanding_.front();
    const bool full = static_cast<int>(outstanding_.size()) >= kStepsInFlight;
    if (!full && !oldest.Ready()) return absl::OkStatus();
    const absl::StatusOr<StepResult> result = oldest.Get();
    oldest.Resolve();
    if (oldest.stopped()) {
      if (stopped_.ok()) {
        stopped_ = result.status();
        stop_step_ = steps_ + 1 - static_cast<int64_t>(outstanding_.size());
      }
    } else {
      ZERO_RETURN_IF_ERROR(result.status());
      known_applied_ = result->applied_steps;
    }
    outstanding_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status StepController::FillRows(char* staging) const {
  const Config& config = context_.plan->config;
  auto* const rows = reinterpret_cast<StepRow*>(staging);
  auto* const groups = reinterpret_cast<GroupScalars*>(staging + kStepRows * sizeof(StepRow));
  for (int i = 0; i < kStepRows; ++i) {
    const int64_t count = known_applied_ + 1 + i;
    const double rate = config.schedule ? config.schedule(count) : config.learning_rate;
    const double clip_norm = config.clip_schedule ? config.clip_schedule(count) : config.clip_norm;
    const double power = static_cast<double>(count);
    const OptimizerKind kind = config.optimizer;
    const double constant = kind == OptimizerKind::kSgd ? config.momentum : config.beta1;
    const double beta1 = config.beta1_schedule ? config.beta1_schedule(count) : constant;
    // Whether this count comes is for the device to know, and the same on every rank; only the
    // first is certain.
    const absl::Status valid = CheckRow(rate, clip_norm, beta1, count);
    if (steps_ + 1 == first_step_ && i == 0) ZERO_RETURN_IF_ERROR(valid);
    rows[i].valid = valid.ok() ? 1 : 0;
    const bool corrected =
        (kind == OptimizerKind::kAdamW || kind == OptimizerKind::kAdam) && config.bias_correction;
    const double correction1 = corrected ? 1 - std::pow(beta1, power) : 1;
    const double correction2 = corrected ? 1 - std::pow(config.beta2, power) : 1;
    const bool decoupled = kind == OptimizerKind::kAdamW || kind == OptimizerKind::kLion;
    rows[i].count = count;
    rows[i].learning_rate = rate;
    rows[i].clip_norm = clip_norm;
    rows[i].sqrt_bias_correction2 = static_cast<float>(std::sqrt(correction2));
    rows[i].beta1 = static_cast<float>(beta1);
    rows[i].one_minus_beta1 = static_cast<float>(1 - beta1);
    for (size_t g = 0; g < config.groups.size(); ++g) {
      const double group_rate = rate * config.groups[g].learning_rate_factor;
      GroupScalars& row = groups[i * config.groups.size() + g];
      row.learning_rate = static_cast<float>(group_rate);
      row.step_size = static_cast<float>(group_rate / correction1);
      const double decay = config.groups[g].weight_decay;
      row.keep = decoupled ? static_cast<float>(1 - group_rate * decay) : 1.0f;
      row.weight_decay = decoupled ? 0.0f : static_cast<float>(decay);
    }
  }
  return absl::OkStatus();
}

StepRecord* StepController::staged_record() const {
  const auto groups = static_cast<int64_t>(context_.plan->config.groups.size());
  return reinterpret_cast<StepRecord*>(
      staging() + kStepRows * (static_cast<int64_t>(sizeof(StepRow)) +
                               groups * static_cast<int64_t>(sizeof(GroupScalars))));
}

absl::Status StepController::UploadRows() {
  const Stream& stream = *context_.arithmetic;
  // Every ring entry is free again: at most kStepsInFlight = kStepRows - 1 are outstanding.
  char* const rows = staging();
  ZERO_RETURN_IF_ERROR(FillRows(rows));
  const auto groups = static_cast<int64_t>(context_.plan->config.groups.size());
  const int64_t row_bytes = kStepRows * static_cast<int64_t>(sizeof(StepRow));
  const int64_t group_bytes = kStepRows * groups * static_cast<int64_t>(sizeof(GroupScalars));
  ZERO_RETURN_IF_ERROR(context_.device->Copy(stream, At<StepRow>(layout().rows), rows, row_bytes));
  return context_.device->Copy(stream, At<GroupScalars>(layout().row_groups), rows + row_bytes,
                               group_bytes);
}

absl::Status StepController::ExchangeNorms(int64_t norm_rows, double loss_weight) {
  const Stream& stream = *context_.arithmetic;
  const Stream& communication = *context_.communication;
  RankNorm* const own = At<RankNorm>(layout().own_norm);
  // Without norms nothing is taken of what was found in the passes so far.
  int64_t* const first_written = norm_rows == 0 ? nullptr : At<int64_t>(layout().first_written);
  const auto combine = [&]() -> absl::Status {
    ZERO_RETURN_IF_ERROR(CombineNorms(stream, At<NormPartial>(layout().partials),
                                      At<int64_t>(layout().bases), norm_rows, loss_weight,
                                      first_written, own));
    if (context_.disk_failed == nullptr) return absl::OkStatus();
    return MarkFailed(stream, context_.disk_failed, own);
  };
  ZERO_RETURN_IF_ERROR(norm_order_.Write(stream, [&] {
    return written_.has_value() ? written_->order().Write(stream, combine) : combine();
  }));
  return norm_order_.Write(communication, [&] {
    const AllGatherPiece piece{own, At<RankNorm>(layout().rank_norms), sizeof(RankNorm),
                               sizeof(RankNorm)};
    return context_.group->AllGather(communication, kControl, {&piece, 1});
  });
}

DecideArguments StepController::ArgumentsOf(int64_t passes) const {
  const Config& config = context_.plan->config;
  DecideArguments arguments;
  arguments.ranks = At<RankNorm>(layout().rank_norms);
  arguments.rank_count = context_.group->size();
  arguments.passes = static_cast<double>(passes * context_.group->size());
  arguments.predivided = config.gradient_predivide_factor;
  arguments.step = steps_ + 1;
  arguments.group_failed = context_.group->failure_flag();
  arguments.rows = At<StepRow>(layout().rows);
  arguments.row_groups = At<GroupScalars>(layout().row_groups);
  arguments.row_count = kStepRows;
  arguments.group_count = static_cast<int64_t>(config.groups.size());
  arguments.rule = RuleOf(config);
  arguments.check_overflow = config.check_overflow ? 1 : 0;
  arguments.max_consecutive_skips = config.max_consecutive_skips;
  arguments.state = device_state();
  arguments.scalars = At<StepScalars>(layout().scalars);
  arguments.groups = At<GroupScalars>(layout().groups);
  arguments.record = At<StepRecord>(layout().record);
  return arguments;
}

absl::Status StepController::DecideAhead(int64_t passes, double loss_weight) {
  const Stream& stream = *context_.arithmetic;
  ZERO_RETURN_IF_ERROR(MakeRoom());
  if (stopped()) return absl::OkStatus();
  const absl::Status uploaded = UploadRows();
  if (IsMisuse(uploaded)) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(uploaded);
  ZERO_RETURN_IF_ERROR(ExchangeNorms(0, loss_weight));
  // The loss scale is static: nobody who reads it has to be waited for.
  return norm_order_.Read(stream, [&] {
    decided_ = steps_ + 1;
    return DecideStep(stream, ArgumentsOf(passes));
  });
}

absl::StatusOr<Pending<StepResult>> StepController::Decide(int64_t passes, double loss_weight) {
  const Stream& stream = *context_.arithmetic;
  const bool ahead = decided_ahead();
  if (!ahead) {
    ZERO_RETURN_IF_ERROR(MakeRoom());
    // Nothing is half done, and every rank decided so: there is nobody to abort. But ranks learn of
    // it at different times; by now all know.
    if (stopped()) return Misuse(stopped_);
    ZERO_RETURN_IF_ERROR(UploadRows());
  }
  ZERO_RETURN_IF_ERROR(ExchangeNorms(layout().norm_rows, loss_weight));
  ZERO_RETURN_IF_ERROR(EndLossScaleUses());
  const DecideArguments arguments = ArgumentsOf(passes);
  ZERO_RETURN_IF_ERROR(norm_order_.Read(stream, [&] {
    if (ahead) return RecordNorms(stream, arguments);
    // Even if this fails, it may have been enqueued.
    decided_ = arguments.step;
    return scale_order_.Write(stream, [&] { return DecideStep(stream, arguments); });
  }));
  StepRecord* const record = staged_record();
  ZERO_RETURN_IF_ERROR(
      context_.device->Copy(stream, record, At<StepRecord>(layout().record), sizeof(StepRecord)));
  ZERO_ASSIGN_OR_RETURN(std::shared_ptr<Event> event, context_.device->CreateEvent());
  ZERO_RETURN_IF_ERROR(event->Record(stream));
  ++steps_;
  outstanding_.push_back(std::make_shared<StepOutcome>(
      std::move(event), record, steps_, context_.group->deadline(), names_, context_.disk_failure));
  return Pending<StepResult>(outstanding_.back());
}

absl::Status StepController::CopyState(const Stream& stream, StepState* to) const {
  return context_.device->Copy(stream, to, device_state(), sizeof(StepState));
}

absl::Status StepController::Restore(int64_t steps, const StepState& state) {
  ZERO_RETURN_IF_ERROR(MakeRoom());
  StepState restored = state;
  restored.stop = StopReason::kNone;
  restored.stop_step = 0;
  // Nothing moves a static one: that of the configuration counts.
  const LossScale& loss_scale = context_.plan->config.loss_scale;
  if (loss_scale.kind == LossScaling::kStatic) {
    restored.loss_scale.scale = static_cast<float>(loss_scale.scale);
  }
  const StepRecord nothing;
  const Stream& stream = *context_.arithmetic;
  const auto upload = [&]() -> absl::Status {
    ZERO_RETURN_IF_ERROR(scale_order_.Write(stream, [&] {
      return context_.device->Copy(stream, device_state(), &restored, sizeof(restored));
    }));
    return context_.device->Copy(stream, At<StepRecord>(layout().record), &nothing,
                                 sizeof(nothing));
  };
  const absl::Status enqueued = upload();
  // The copies read memory of this function, also when the last of them failed.
  ZERO_RETURN_IF_ERROR(stream.Synchronize());
  ZERO_RETURN_IF_ERROR(enqueued);
  steps_ = steps;
  first_step_ = steps + 1;
  decided_ = steps;
  known_applied_ = state.applied;
  stopped_ = absl::OkStatus();
  stop_step_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<StepRecord> StepController::LastRecord() const {
  StepRecord record;
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                        context_.device->CreateStream("last-record"));
  ZERO_RETURN_IF_ERROR(
      context_.device->Copy(*stream, &record, At<StepRecord>(layout().record), sizeof(StepRecord)));
  ZERO_RETURN_IF_ERROR(stream->Synchronize());
  return record;
}

}  // namespace zero
