#include "tests/zero/toy_trainer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/host_device.h"
#include "device/status.h"
#include "kernels/element_access.h"
#include "tests/zero/device_toy.h"
#include "zero/initializer.h"

namespace zero::test {
namespace {

float WeightFactor(const ToyRun& run) { return run.exact_gradients ? 0.0f : 0.5f; }

// What one use in one micro-batch contributes to one parameter, besides WeightFactor x weight.
std::vector<float> MakeValues(const ToyRun& run, const Parameter& parameter, int rank, int step,
                              int micro) {
  std::vector<float> gradient(static_cast<size_t>(ElementCount(parameter)));
  if (run.skip_step >= 0 && step >= run.skip_step) ++step;
  const std::string name = absl::StrCat(parameter.name, "/", rank, "/", step, "/", micro);
  FillNormal(17, name, 0, 1.0f, absl::MakeSpan(gradient));
  if (run.exact_gradients) {
    // Small integers, and no -0: adding it to 0 gives 0.
    for (float& value : gradient) value = std::nearbyint(value * 4) + 0.0f;
  }
  if (run.spoil) run.spoil(rank, step, gradient);
  return gradient;
}

std::vector<float> MakeGradient(const ToyRun& run, const Parameter& parameter, int rank, int step,
                                int micro, const std::function<float(int64_t)>& weight) {
  std::vector<float> gradient = MakeValues(run, parameter, rank, step, micro);
  const float factor = WeightFactor(run);
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] += factor * weight(static_cast<int64_t>(i));
  }
  return gradient;
}

// One rank's run.
class Trainer {
 public:
  Trainer(const ToyRun& run, ProcessGroup* group, Device* device)
      : run_(run), group_(group), device_(device) {}

  absl::Status Train(Outcome* outcome);

 private:
  bool resident(int unit) const { return run_.model.units[unit].resident; }
  bool passed_over(int unit, int step) const { return unit == run_.passed_over_unit && step == 1; }
  double LossWeight(int step) const {
    return run_.loss_weight ? run_.loss_weight(group_->rank(), step) : 0;
  }
  absl::Status Forward(int unit);
  absl::Status Backward(int unit, int step, int micro, bool reduce);
  absl::Status TrainPass(int step, int micro);
  absl::Status Evaluate();
  absl::Status GatherAll(Outcome* outcome);

  const ToyRun& run_;
  ProcessGroup* const group_;
  Device* const device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceToy> device_toy_;  // where the device is not the host
  std::unique_ptr<ShardedOptimizer> optimizer_;
};

absl::Status Trainer::Forward(int unit) {
  ZERO_ASSIGN_OR_RETURN(const Weights weights, optimizer_->AcquireWeights(unit, *stream_));
  const Unit* const description = &optimizer_->model().units[unit];
  // An inf that nothing holds back reaches them.
  if (!run_.config.check_overflow && run_.overflow_step >= 0) {
    return optimizer_->ReleaseWeights(unit, *stream_);
  }
  if (device_toy_ != nullptr) {
    for (size_t p = 0; p < description->parameters.size(); ++p) {
      ZERO_RETURN_IF_ERROR(
          device_toy_->Check(*stream_, description->parameters[p], weights.data[p]));
    }
    return optimizer_->ReleaseWeights(unit, *stream_);
  }
  ZERO_RETURN_IF_ERROR(stream_->Enqueue("forward", [=]() -> absl::Status {
    for (size_t p = 0; p < description->parameters.size(); ++p) {
      const Parameter& parameter = description->parameters[p];
      for (int64_t i = 0; i < ElementCount(parameter); ++i) {
        if (std::isfinite(LoadElement(weights.data[p], parameter.dtype, i))) continue;
        return absl::DataLossError(
            absl::StrCat("weight ", parameter.name, "[", i, "] is not finite"));
      }
    }
    return absl::OkStatus();
  }));
  return optimizer_->ReleaseWeights(unit, *stream_);
}

absl::Status Trainer::Backward(int unit, int step, int micro, bool reduce) {
  ZERO_ASSIGN_OR_RETURN(const Weights weights, optimizer_->AcquireWeights(unit, *stream_));
  ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer_->AcquireGradients(unit, *stream_));
  const Unit* const description = &optimizer_->model().units[unit];
  std::vector<int> unwritten;
  if (unit == run_.unwritten_unit) unwritten.push_back(run_.unwritten_parameter);
  const bool overflows = step == run_.overflow_step && group_->rank() == run_.overflow_rank &&
                         unit == run_.overflow_unit;
  if (device_toy_ != nullptr) {
    for (size_t p = 0; p < description->parameters.size(); ++p) {
      const Parameter& parameter = description->parameters[p];
      if (!parameter.trainable) continue;
      if (unit == run_.unwritten_unit && static_cast<int>(p) == run_.unwritten_parameter) continue;
      std::vector<float> values = MakeValues(run_, parameter, group_->rank(), step, micro);
      if (overflows && p == 0 && !values.empty()) {
        values.back() = std::numeric_limits<float>::infinity();
      }
      ZERO_RETURN_IF_ERROR(device_toy_->Backward(*stream_, parameter, weights.data[p],
                                                 WeightFactor(run_), std::move(values),
                                                 gradients.data[p], gradients.accumulate));
    }
    if (reduce) ZERO_RETURN_IF_ERROR(optimizer_->ReduceGradients(unit, *stream_, unwritten));
    return optimizer_->ReleaseWeights(unit, *stream_);
  }
  const float* const loss_scale = run_.scaled ? optimizer_->loss_scale() : nullptr;
  const auto backward = [=, this]() -> absl::Status {
    for (size_t p = 0; p < description->parameters.size(); ++p) {
      const Parameter& parameter = description->parameters[p];
      if (!parameter.trainable) {
        if (gradients.data[p] == nullptr) continue;
        return absl::InternalError("a frozen parameter has a gradient");
      }
      if (unit == run_.unwritten_unit && static_cast<int>(p) == run_.unwritten_parameter) continue;
      std::vector<float> values =
          MakeGradient(run_, parameter, group_->rank(), step, micro,
                       [&](int64_t i) { return LoadElement(weights.data[p], parameter.dtype, i); });
      if (loss_scale != nullptr) {
        for (float& value : values) value *= *loss_scale;
      }
      if (overflows && p == 0 && !values.empty()) {
        values.back() = std::numeric_limits<float>::infinity();
      }
      for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
        const float before =
            gradients.accumulate ? LoadElement(gradients.data[p], parameter.dtype, i) : 0.0f;
        StoreElement(gradients.data[p], parameter.dtype, i,
                     before + values[static_cast<size_t>(i)]);
      }
    }
    return absl::OkStatus();
  };
  ZERO_RETURN_IF_ERROR(stream_->Enqueue("backward", backward));
  if (reduce) ZERO_RETURN_IF_ERROR(optimizer_->ReduceGradients(unit, *stream_, unwritten));
  return optimizer_->ReleaseWeights(unit, *stream_);
}

// Resident units are used at their place and once more at the end of forward.
absl::Status Trainer::TrainPass(int step, int micro) {
  const int units = static_cast<int>(run_.model.units.size());
  const bool last = micro + 1 == run_.micro_batches;
  const double weight = last && run_.weight_with_pass ? LossWeight(step) : 0;
  ZERO_RETURN_IF_ERROR(optimizer_->BeginPass(last ? Pass::kTrainLast : Pass::kTrain, weight));
  for (int u = 0; u < units; ++u) ZERO_RETURN_IF_ERROR(Forward(u));
  for (int u = 0; u < units; ++u) {
    if (resident(u)) ZERO_RETURN_IF_ERROR(Forward(u));
  }
  for (int u = 0; u < units; ++u) {
    if (resident(u) && !passed_over(u, step)) {
      ZERO_RETURN_IF_ERROR(Backward(u, step, micro, /*reduce=*/false));
    }
  }
  for (int u = units - 1; u >= 0; --u) {
    if (passed_over(u, step)) {
      ZERO_RETURN_IF_ERROR(Forward(u));
    } else {
      ZERO_RETURN_IF_ERROR(Backward(u, step, micro, /*reduce=*/true));
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::Evaluate() {
  ZERO_RETURN_IF_ERROR(optimizer_->BeginPass(Pass::kEvaluate));
  for (int u = 0; u < static_cast<int>(run_.model.units.size()); ++u) {
    ZERO_RETURN_IF_ERROR(Forward(u));
  }
  return absl::OkStatus();
}

absl::Status Trainer::GatherAll(Outcome* outcome) {
  const std::pair<State, std::map<std::string, std::vector<float>>*> states[] = {
      {State::kWeight, &outcome->weights},
      {State::kMaster, &outcome->masters},
      {State::kMoment1, &outcome->moment1},
      {State::kMoment2, &outcome->moment2}};
  for (const auto& [state, values] : states) {
    for (const Unit& unit : run_.model.units) {
      for (const Parameter& parameter : unit.parameters) {
        std::vector<float> all(static_cast<size_t>(ElementCount(parameter)));
        const absl::Status gathered =
            optimizer_->Gather(state, parameter.name, absl::MakeSpan(all));
        if (absl::IsNotFound(gathered)) continue;  // frozen, or an optimizer without this moment
        ZERO_RETURN_IF_ERROR(gathered);
        (*values)[parameter.name] = std::move(all);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::Train(Outcome* outcome) {
  ZERO_ASSIGN_OR_RETURN(stream_, device_->CreateStream(absl::StrCat("toy-", group_->rank())));
  if (device_->kind() != DeviceKind::kHost) {
    ZERO_ASSIGN_OR_RETURN(device_toy_, DeviceToy::Create(device_, run_.model));
  }
  ZERO_ASSIGN_OR_RETURN(
      optimizer_, ShardedOptimizer::Create(run_.config, run_.model, device_, group_, run_.adopted));
  outcome->plan = optimizer_->plan();
  ZERO_RETURN_IF_ERROR(optimizer_->Write(State::kMaster, InitialValues()));
  if (run_.start) ZERO_RETURN_IF_ERROR(run_.start(*optimizer_, group_->rank()));
  outcome->traffic.push_back(group_->traffic());
  std::vector<Pending<StepResult>> pending;
  for (int step = run_.first_step; step < run_.steps; ++step) {
    if (run_.between) ZERO_RETURN_IF_ERROR(run_.between(*optimizer_, group_->rank(), step));
    if (run_.evaluate_between) ZERO_RETURN_IF_ERROR(Evaluate());
    for (int micro = 0; micro < run_.micro_batches; ++micro) {
      ZERO_RETURN_IF_ERROR(TrainPass(step, micro));
      for (int e = 0; e < run_.evaluate_within; ++e) ZERO_RETURN_IF_ERROR(Evaluate());
    }
    const double weight = run_.weight_with_pass ? 0 : LossWeight(step);
    ZERO_ASSIGN_OR_RETURN(Pending<StepResult> result, optimizer_->Step(weight));
    pending.push_back(std::move(result));
    if (run_.evaluate_between) ZERO_RETURN_IF_ERROR(Evaluate());
    outcome->traffic.push_back(group_->traffic());
    outcome->allocations.push_back(device_->allocations());
  }
  if (run_.between) ZERO_RETURN_IF_ERROR(run_.between(*optimizer_, group_->rank(), run_.steps));
  for (Pending<StepResult>& result : pending) {
    ZERO_ASSIGN_OR_RETURN(StepResult value, result.Get());
    outcome->steps.push_back(std::move(value));
  }
  ZERO_RETURN_IF_ERROR(optimizer_->Finish());
  if (device_toy_ != nullptr) {
    ZERO_RETURN_IF_ERROR(stream_->Synchronize());
    ZERO_RETURN_IF_ERROR(device_toy_->Checked());
  }
  outcome->memory = device_->memory();
  return GatherAll(outcome);
}

template <class T>
bool SameBits(const T& a, const T& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

std::string Difference(const char* what, const std::map<std::string, std::vector<float>>& a,
                       const std::map<std::string, std::vector<float>>& b) {
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return absl::StrCat(what, " of ", name, " is missing");
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&values[i], &other->second[i], sizeof(float)) == 0) continue;
      return absl::StrFormat("%s of %s[%d]: %.9g and %.9g", what, name, i, values[i],
                             other->second[i]);
    }
  }
  return a.size() == b.size() ? "" : absl::StrCat(what, ": other parameters");
}

}  // namespace

std::vector<float> ToyGradient(const ToyRun& run, const Parameter& parameter, int rank, int step,
                               int micro, const std::vector<float>& weight, int uses) {
  const std::vector<float> once = MakeGradient(
      run, parameter, rank, step, micro, [&](int64_t i) { return weight[static_cast<size_t>(i)]; });
  std::vector<float> sum(once.size(), 0.0f);
  for (int use = 0; use < uses; ++use) {
    for (size_t i = 0; i < once.size(); ++i) {
      const float value = sum[i] + once[i];
      alignas(float) unsigned char rounded[sizeof(float)];
      StoreElement(rounded, parameter.dtype, 0, value);
      sum[i] = LoadElement(rounded, parameter.dtype, 0);
    }
  }
  return sum;
}

Source InitialValues() {
  return [](const Parameter& parameter, int64_t first, absl::Span<float> out) {
    FillNormal(5, parameter.name, first, 0.25f, out);
    return absl::OkStatus();
  };
}

Backend HostBackend(const OperationHook& hook, std::shared_ptr<SeededScheduler> scheduler) {
  Backend backend;
  backend.name = "host";
  backend.make_device = [hook, scheduler](int) {
    HostDevice::Options options;
    options.hook = hook;
    options.scheduler = scheduler;
    return std::make_unique<HostDevice>(options);
  };
  backend.run_ranks = [scheduler](int ranks, absl::Duration deadline,
                                  const std::function<absl::Status(ProcessGroup*)>& body) {
    LocalWorld world(ranks, deadline);
    return RunRanks(world, body, scheduler.get());
  };
  return backend;
}

Outcome RunToy(const ToyRun& run) {
  const bool host = run.hook || run.scheduler != nullptr;
  const Backend backend = host ? HostBackend(run.hook, run.scheduler) : run.backend;
  std::vector<Outcome> outcomes(static_cast<size_t>(run.ranks));
  Outcome result;
  const auto train = [&](ProcessGroup* group) -> absl::Status {
    const int rank = group->rank();
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, backend.make_device(rank));
    absl::Status trained;
    {
      Trainer trainer(run, group, device.get());
      trained = trainer.Train(&outcomes[rank]);
      if (!trained.ok()) group->Abort(trained);
    }
    for (const MemoryUse& use : device->memory()) outcomes[rank].live_bytes_left += use.current;
    return trained;
  };
  const absl::Status status = backend.run_ranks(run.ranks, run.deadline, train);
  for (int r = 1; r < run.ranks && status.ok(); ++r) {
    if (SameState(outcomes[0], outcomes[r])) continue;
    outcomes[0].status = absl::InternalError(absl::StrCat(
        "rank ", r, " ended in another state: ", FirstDifference(outcomes[0], outcomes[r])));
  }
  result = std::move(outcomes[0]);
  if (!status.ok()) result.status = status;
  for (int r = 1; r < run.ranks; ++r) result.live_bytes_left += outcomes[r].live_bytes_left;
  return result;
}

std::string FirstDifference(const Outcome& a, const Outcome& b) {
  if (a.steps.size() != b.steps.size()) return "another number of steps";
  for (size_t i = 0; i < a.steps.size(); ++i) {
    if (std::memcmp(&a.steps[i].gradient_norm, &b.steps[i].gradient_norm, sizeof(double)) != 0 ||
        a.steps[i].applied != b.steps[i].applied ||
        a.steps[i].clip_coefficient != b.steps[i].clip_coefficient) {
      return absl::StrFormat("step %d: norms %.17g and %.17g", i + 1, a.steps[i].gradient_norm,
                             b.steps[i].gradient_norm);
    }
  }
  for (const std::string& difference :
       {Difference("weight", a.weights, b.weights), Difference("master", a.masters, b.masters),
        Difference("moment1", a.moment1, b.moment1), Difference("moment2", a.moment2, b.moment2)}) {
    if (!difference.empty()) return difference;
  }
  return "";
}

bool SameState(const Outcome& a, const Outcome& b) { return FirstDifference(a, b).empty(); }

}  // namespace zero::test
