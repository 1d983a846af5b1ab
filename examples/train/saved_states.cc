#include "examples/train/saved_states.h"

#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/dtype.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "examples/train/groups.h"
#include "io/problems.h"

namespace zero::train {
namespace {

bool IsAdam(const std::string& optimizer) { return absl::StartsWith(optimizer, "adam"); }

// The first names, and how many more.
std::string Shown(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (names.size() <= kShown) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kShown, ", "), " and ",
                      names.size() - kShown, " more");
}

void AddFrozen(const CheckpointManifest& manifest, const Model& grouped, Problems& problems) {
  std::map<std::string, bool> trainable;
  for (const Unit& unit : grouped.units) {
    for (const Parameter& parameter : unit.parameters) {
      trainable[parameter.name] = parameter.trainable;
    }
  }
  std::vector<std::string> frozen, thawed;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    const auto now = trainable.find(parameter.name);
    if (now == trainable.end() || now->second == parameter.trainable) continue;
    (parameter.trainable ? frozen : thawed).push_back(parameter.name);
  }
  if (!frozen.empty()) {
    problems.Add(absl::StrCat("--freeze names ", Shown(frozen), ", trained in the checkpoint"));
  }
  if (!thawed.empty()) {
    problems.Add(absl::StrCat("--freeze leaves out ", Shown(thawed), ", frozen in the checkpoint"));
  }
}

}  // namespace

absl::Status CheckStates(const std::string& path, const CheckpointManifest& manifest,
                         const Options& options, const llama::LlamaConfig& model) {
  Problems problems;
  if (manifest.optimizer != options.optimizer &&
      !(IsAdam(manifest.optimizer) && IsAdam(options.optimizer))) {
    problems.Add(absl::StrCat("its states are those of ", manifest.optimizer,
                              ", and --optimizer is ", options.optimizer));
  }
  std::set<std::string> dtypes;
  bool moments = false;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    dtypes.insert(Name(parameter.dtype));
    moments |= parameter.states.count(kMoment1State) != 0;
  }
  if (dtypes.size() == 1 && *dtypes.begin() != options.dtype) {
    problems.Add(
        absl::StrCat("its weights are ", *dtypes.begin(), ", and --dtype is ", options.dtype));
  }
  if (problems.empty() && options.optimizer == "sgd" && options.momentum > 0 && !moments) {
    problems.Add(absl::StrCat("its sgd had no momentum, and --momentum is ",
                              support::ShortestNumber(options.momentum)));
  }
  ZERO_ASSIGN_OR_RETURN(const Model grouped, GroupedModel(options, model, DType::kF32));
  AddFrozen(manifest, grouped, problems);
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": cannot be gone on with: ", problems.text(),
                   options.file.has_value() ? " (flags, or --config)" : "",
                   "; go on with what it was written with, or make weights of it with "
                   "zero-checkpoint export, which any run can begin from as --model"));
}

}  // namespace zero::train
