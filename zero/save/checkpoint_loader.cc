#include "zero/save/checkpoint_loader.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "io/problems.h"
#include "zero/agreement.h"
#include "zero/save/checkpoint_description.h"

namespace zero {
namespace {

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Of one parameter: what stands in the way. Empty: nothing.
std::string Differences(const CheckpointParameter& saved, const CheckpointParameter& wanted) {
  std::vector<std::string> found;
  if (saved.shape != wanted.shape) {
    found.push_back(absl::StrCat(Shape(saved.shape), " in the checkpoint, ", Shape(wanted.shape),
                                 " in the model"));
  }
  if (saved.dtype != wanted.dtype) {
    found.push_back(absl::StrCat(Name(saved.dtype), " in the checkpoint, ", Name(wanted.dtype),
                                 " in the model"));
  }
  if (saved.trainable != wanted.trainable) {
    const auto name = [](bool trainable) { return trainable ? "trainable" : "frozen"; };
    found.push_back(absl::StrCat(name(saved.trainable), " in the checkpoint, ",
                                 name(wanted.trainable), " in the model"));
  } else {
    for (const auto& [state, dtype] : wanted.states) {
      if (saved.states.count(state) == 0) found.push_back(absl::StrCat("no ", state));
    }
  }
  return absl::StrJoin(found, ", ");
}

absl::Status Compare(const CheckpointManifest& manifest, const Plan& plan, const Model& model) {
  Problems problems;
  const auto adam = [](const std::string& name) {
    return name == Name(OptimizerKind::kAdam) || name == Name(OptimizerKind::kAdamW);
  };
  const std::string optimizer = Name(plan.config.optimizer);
  if (manifest.optimizer != optimizer && !(adam(manifest.optimizer) && adam(optimizer))) {
    problems.Add(absl::StrCat("its states are those of ", manifest.optimizer,
                              ", the configuration asks for ", optimizer));
  }
  std::map<std::string, const CheckpointParameter*> saved;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    saved[parameter.name] = &parameter;
  }
  for (const CheckpointParameter& wanted : CheckpointParameters(plan, model)) {
    const auto found = saved.find(wanted.name);
    if (found == saved.end()) {
      problems.Add(absl::StrCat("parameter '", wanted.name, "' is not in it"));
      continue;
    }
    const std::string differences = Differences(*found->second, wanted);
    if (!differences.empty()) {
      problems.Add(absl::StrCat("parameter '", wanted.name, "': ", differences));
    }
    saved.erase(found);
  }
  for (const CheckpointParameter& parameter : manifest.parameters) {
    if (saved.count(parameter.name) == 0) continue;
    problems.Add(absl::StrCat("the model has no parameter '", parameter.name, "'"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(problems.text());
}

// "learning_rate(10): 0.1" is the value "0.1" of "learning_rate(10)".
std::map<std::string, std::string> Values(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> values;
  for (const std::string& line : lines) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) values[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return values;
}

// Numbers may be written with fewer digits in one of them.
bool SameValue(const std::string& a, const std::string& b) {
  double first = 0;
  double second = 0;
  if (a == b) return true;
  if (!absl::SimpleAtod(a, &first) || !absl::SimpleAtod(b, &second)) return false;
  return std::abs(first - second) <= 1e-11 * std::max(std::abs(first), std::abs(second));
}

}  // namespace

absl::StatusOr<CheckpointLoader> CheckpointLoader::Open(const std::string& path, const Plan& plan,
                                                        const Model& model) {
  ZERO_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
  CheckpointLoader loader(std::move(reader));
  const absl::Status compared = Compare(loader.manifest(), plan, model);
  if (!compared.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a checkpoint of this model: ", compared.message()));
  }
  const std::vector<CheckpointParameter>& parameters = loader.manifest().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    loader.index_[parameters[i].name] = static_cast<int64_t>(i);
  }
  return loader;
}

std::vector<std::string> CheckpointLoader::Notes(const Config& config) const {
  // One that was made of weights has no hyper-parameters that could differ.
  if (manifest().configuration.empty()) return {};
  // What changes no value, or no more than the order of a sum.
  std::set<std::string> ours = {"stage", "reduce_bucket_size", "prefetch", "reduction",
                                "check_gradients"};
  // Where a moving one starts; it goes on from where it was.
  if (config.loss_scale.kind != LossScaling::kStatic) ours.insert("loss_scale.scale");
  const std::map<std::string, std::string> saved = Values(manifest().configuration);
  const std::map<std::string, std::string> now = Values(AgreementLines(config, Model()));
  std::vector<std::string> notes;
  std::set<std::string> schedules;  // one of the values of each is enough
  const auto note = [&](const std::string& key, const std::string& before,
                        const std::string& after) {
    if (SameValue(before, after) || ours.count(key) > 0) return;
    if (key.rfind("offload.", 0) == 0) return;
    const size_t call = key.find('(');
    if (call != std::string::npos && !schedules.insert(key.substr(0, call)).second) return;
    notes.push_back(absl::StrCat(key, ": ", before, " in the checkpoint, ", after, " now"));
  };
  const std::string nothing = "not set";
  for (const auto& [key, value] : saved) {
    const auto other = now.find(key);
    note(key, value, other == now.end() ? nothing : other->second);
  }
  for (const auto& [key, value] : now) {
    if (saved.count(key) == 0) note(key, nothing, value);
  }
  return notes;
}

Source CheckpointLoader::source(State state) {
  return [this, state](const Parameter& parameter, int64_t first, absl::Span<float> out) {
    const char* name = state == State::kMoment1 ? kMoment1State : kMoment2State;
    if (state == State::kMaster) name = parameter.trainable ? kMasterState : kWeightState;
    return reader_.Read(index_.at(parameter.name), name, first, out);
  };
}

}  // namespace zero
