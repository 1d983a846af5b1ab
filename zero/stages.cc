#include "zero/stages.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/agreement.h"

namespace zero {
namespace {

// Adopted memory must be what the plan laid out.
absl::Status CheckAddresses(const Plan& plan, const Model& model, const char* what,
                            const void* base, const std::vector<const void*>& addresses,
                            int64_t (Plan::*offset_of)(int, int) const) {
  if (reinterpret_cast<uintptr_t>(base) % 64 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("adopted ", what, ": the memory is not 64-byte aligned"));
  }
  if (addresses.empty()) return absl::OkStatus();
  if (base == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("adopted ", what, ": addresses are given, but no memory"));
  }
  size_t next = 0;
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
    for (int p = 0; p < static_cast<int>(model.units[u].parameters.size()); ++p, ++next) {
      const Parameter& parameter = model.units[u].parameters[p];
      const int64_t wanted = (plan.*offset_of)(u, p);
      if (next >= addresses.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("adopted ", what, ": no address for '", parameter.name, "'"));
      }
      if (wanted < 0 || ElementCount(parameter) == 0) continue;
      const int64_t given =
          static_cast<const char*>(addresses[next]) - static_cast<const char*>(base);
      if (given == wanted) continue;
      return absl::InvalidArgumentError(absl::StrCat("adopted ", what, ": '", parameter.name,
                                                     "' lies at byte ", given,
                                                     ", the plan puts it at byte ", wanted));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAdopted(const Plan& plan, const Model& model, const Adopted& adopted) {
  const int stage = plan.config.stage;
  if (adopted.weights != nullptr && stage > 2) {
    return absl::InvalidArgumentError("adopted weights: stage 3 keeps slices; stages 0 to 2 adopt");
  }
  if (adopted.gradients != nullptr && stage > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("adopted gradients: stage ", stage, " keeps slices; stages 0 and 1 adopt"));
  }
  ZERO_RETURN_IF_ERROR(CheckAddresses(plan, model, "weights", adopted.weights,
                                      adopted.weight_addresses, &Plan::weight_offset));
  return CheckAddresses(plan, model, "gradients", adopted.gradients, adopted.gradient_addresses,
                        &Plan::gradient_offset);
}

std::unique_ptr<OptimizerCore> MakeStage(Plan plan, Model model) {
  switch (plan.config.stage) {
    case 0:
      return std::make_unique<Stage0>(std::move(plan), std::move(model));
    case 1:
      return std::make_unique<Stage1>(std::move(plan), std::move(model));
    case 2:
      return std::make_unique<Stage2>(std::move(plan), std::move(model));
    default:
      return std::make_unique<Stage3>(std::move(plan), std::move(model));
  }
}

// `same_everywhere`: an error is every rank's, which the ranks have found out together.
absl::StatusOr<std::unique_ptr<ShardedOptimizer>> CreateHere(const Config& config, Model model,
                                                             Device* device, ProcessGroup* group,
                                                             const Adopted& adopted,
                                                             bool& same_everywhere) {
  ZERO_ASSIGN_OR_RETURN(Plan plan, MakePlan(config, model, group->size()));
  ZERO_RETURN_IF_ERROR(CheckAdopted(plan, model, adopted));
  const absl::Status agreed = CheckAgreement(AgreementLines(config, model), device, group);
  same_everywhere = absl::IsInvalidArgument(agreed);
  ZERO_RETURN_IF_ERROR(agreed);
  std::unique_ptr<OptimizerCore> optimizer = MakeStage(std::move(plan), std::move(model));
  ZERO_RETURN_IF_ERROR(optimizer->Initialise(device, group, adopted));
  return optimizer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Create(
    const Config& config, Model model, Device* device, ProcessGroup* group, Adopted adopted) {
  if (device == nullptr || group == nullptr) {
    return absl::InvalidArgumentError("Create: a device and a group are needed");
  }
  bool same_everywhere = false;
  absl::StatusOr<std::unique_ptr<ShardedOptimizer>> optimizer =
      CreateHere(config, std::move(model), device, group, adopted, same_everywhere);
  // Ranks that create theirs would wait for this one at their first collective.
  if (!optimizer.ok() && !same_everywhere && group->size() > 1) {
    group->Abort(absl::Status(
        optimizer.status().code(),
        absl::StrCat("rank ", group->rank(), ": Create: ", optimizer.status().message())));
  }
  return optimizer;
}

absl::StatusOr<std::unique_ptr<WeightStore>> Stage0::MakeWeights(const Parts& parts,
                                                                 const Adopted& adopted) {
  return MakeWholeWeights(parts.context, /*gather_updates=*/false, parts.pipeline, adopted.weights);
}
absl::StatusOr<std::unique_ptr<GradientStore>> Stage0::MakeGradients(const Parts& parts,
                                                                     const Adopted& adopted) {
  return MakeWholeGradients(parts.context, /*gather_sums=*/true, parts.reduction, parts.norms,
                            parts.pipeline, adopted.gradients);
}

absl::StatusOr<std::unique_ptr<WeightStore>> Stage1::MakeWeights(const Parts& parts,
                                                                 const Adopted& adopted) {
  return MakeWholeWeights(parts.context, /*gather_updates=*/true, parts.pipeline, adopted.weights);
}

absl::StatusOr<std::unique_ptr<GradientStore>> Stage1::MakeGradients(const Parts& parts,
                                                                     const Adopted& adopted) {
  return MakeWholeGradients(parts.context, /*gather_sums=*/false, parts.reduction, parts.norms,
                            parts.pipeline, adopted.gradients);
}

absl::StatusOr<std::unique_ptr<GradientStore>> Stage2::MakeGradients(const Parts& parts,
                                                                     const Adopted&) {
  return MakeSlicedGradients(parts.context, parts.reduction, parts.norms, parts.pipeline);
}

absl::StatusOr<std::unique_ptr<WeightStore>> Stage3::MakeWeights(const Parts& parts,
                                                                 const Adopted&) {
  return MakeSlicedWeights(parts.context, parts.pipeline);
}

}  // namespace zero
