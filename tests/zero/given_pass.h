// Passes whose gradients are a given function of parameter and element.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/status.h"
#include "kernels/element_access.h"
#include "tests/zero/rank_fixture.h"

namespace zero::test {

inline Parameter MakeParameter(const std::string& name, const std::vector<int64_t>& shape,
                               DType dtype = DType::kF32) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = shape;
  parameter.dtype = dtype;
  return parameter;
}

// body(rank) on a thread for each rank; in the threads nothing is asserted.
inline absl::Status OnRanks(int ranks, const Config& config, const Model& model,
                            const std::function<absl::Status(Rank&)>& body) {
  LocalWorld world(ranks, absl::Seconds(60));
  return RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(Rank rank, Rank::Create(config, model, group));
    return body(rank);
  });
}

// Of a whole pass: each of the two uses of a resident unit writes half of it.
using GradientAt = std::function<float(const Parameter& parameter, int64_t element)>;

// Fills what lies between and behind the parameters of a unit, whose gradients are at `data`.
inline void FillGaps(const UnitLayout& layout, absl::Span<void* const> data, float value) {
  for (const Run& gap : layout.gaps) {
    const Segment& segment = layout.segments[gap.segment];
    if (!segment.trainable) continue;
    size_t p = 0;
    while (layout.parameters[p].segment != gap.segment) ++p;
    char* const start =
        static_cast<char*>(data[p]) - layout.parameters[p].first * SizeOf(segment.dtype);
    for (int64_t i = gap.first; i < gap.first + gap.count; ++i) {
      StoreElement(start, segment.dtype, i, value);
    }
  }
}

inline absl::Status RunBackward(Rank& rank, int u, const GradientAt& gradient, float share,
                                std::optional<float> gaps) {
  ZERO_ASSIGN_OR_RETURN(const Gradients gradients,
                        rank.optimizer->AcquireGradients(u, *rank.stream));
  const Unit* const unit = &rank.optimizer->model().units[u];
  const UnitLayout* const layout = &rank.optimizer->plan().layout.units[u];
  return rank.stream->Enqueue("backward", [=]() -> absl::Status {
    const auto& [data, add] = gradients;
    for (size_t p = 0; p < data.size(); ++p) {
      const Parameter& parameter = unit->parameters[p];
      if (!parameter.trainable) {
        if (data[p] == nullptr) continue;
        return absl::InternalError(parameter.name + " is frozen and has a gradient");
      }
      for (int64_t i = 0; i < ElementCount(parameter); ++i) {
        const float before = add ? LoadElement(data[p], parameter.dtype, i) : 0;
        StoreElement(data[p], parameter.dtype, i, before + share * gradient(parameter, i));
      }
    }
    // Once a stored gradient is added to, its gaps are the optimizer's.
    if (gaps.has_value() && !add) FillGaps(*layout, data, *gaps);
    return absl::OkStatus();
  });
}

// A training pass. `gaps`: what is left in the memory around the gradients.
inline absl::Status RunPass(Rank& rank, Pass pass, const GradientAt& gradient,
                            std::optional<float> gaps = {}) {
  ZERO_RETURN_IF_ERROR(rank.optimizer->BeginPass(pass));
  for (int u = 0; u < rank.units(); ++u) {
    ZERO_RETURN_IF_ERROR(rank.optimizer->AcquireWeights(u, *rank.stream).status());
    ZERO_RETURN_IF_ERROR(rank.optimizer->ReleaseWeights(u, *rank.stream));
  }
  for (int u = rank.units() - 1; u >= 0; --u) {
    const int uses = rank.optimizer->model().units[u].resident ? 2 : 1;
    for (int use = 0; use < uses; ++use) {
      ZERO_RETURN_IF_ERROR(RunBackward(rank, u, gradient, 1.0f / static_cast<float>(uses), gaps));
    }
    ZERO_RETURN_IF_ERROR(rank.optimizer->ReduceGradients(u, *rank.stream));
  }
  return absl::OkStatus();
}

inline absl::StatusOr<StepResult> EndStep(Rank& rank, double loss_weight = 0) {
  ZERO_ASSIGN_OR_RETURN(Pending<StepResult> result, rank.optimizer->Step(loss_weight));
  return result.Get();
}

// A step of one micro-batch.
inline absl::StatusOr<StepResult> RunStep(Rank& rank, const GradientAt& gradient,
                                          std::optional<float> gaps = {}) {
  ZERO_RETURN_IF_ERROR(RunPass(rank, Pass::kTrainLast, gradient, gaps));
  return EndStep(rank);
}

// [C] One state of every parameter that has it, in the order of the model.
inline absl::StatusOr<std::vector<std::vector<float>>> GatherAll(Rank& rank, State state) {
  std::vector<std::vector<float>> all;
  for (const Unit& unit : rank.optimizer->model().units) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float> values(static_cast<size_t>(ElementCount(parameter)));
      const absl::Status status =
          rank.optimizer->Gather(state, parameter.name, absl::MakeSpan(values));
      if (absl::IsNotFound(status)) continue;
      ZERO_RETURN_IF_ERROR(status);
      all.push_back(std::move(values));
    }
  }
  return all;
}

}  // namespace zero::test
