#include "examples/train/groups.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device/status.h"
#include "examples/llama/model_description.h"
#include "examples/support/text.h"
#include "zero/parameter_groups.h"

namespace zero::train {
namespace {

std::vector<std::string> PatternsOf(const std::string& list) {
  return absl::StrSplit(list, ',', absl::SkipEmpty());
}

ParameterGroup GroupOf(const std::string& pattern, bool frozen) {
  ParameterGroup group;
  group.pattern = pattern;
  group.frozen = frozen;
  return group;
}

// "0-3, 5" for {0, 1, 2, 3, 5}.
std::string Ranges(const std::set<int>& numbers) {
  std::vector<std::string> ranges;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) ++last;
    ranges.push_back(last == first ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  return absl::StrJoin(ranges, ", ");
}

// Tensors of one kind. Those of layers are told by their last name and the layers that have it.
class Tensors {
 public:
  void Add(const Parameter& parameter) {
    ++count_;
    elements_ += ElementCount(parameter);
    std::vector<std::string> parts = absl::StrSplit(parameter.name, '.');
    if (parts.size() > 1 && parts.back() == "weight") parts.pop_back();
    int layer = 0;
    const bool in_layer = parts.size() > 3 && absl::SimpleAtoi(parts[2], &layer);
    std::set<int>* layers = nullptr;
    for (auto& [name, where] : names_) {
      if (name == parts.back()) layers = &where;
    }
    if (layers == nullptr) layers = &names_.emplace_back(parts.back(), std::set<int>()).second;
    if (in_layer) layers->insert(layer);
  }

  int64_t count() const { return count_; }

  std::string text() const {
    std::string text = absl::StrCat(count_, count_ == 1 ? " tensor, " : " tensors, ",
                                    support::WithSeparators(elements_), " elements");
    std::vector<std::string> items;
    std::vector<std::pair<std::set<int>, std::vector<std::string>>> layers;
    for (const auto& [name, where] : names_) {
      if (where.empty()) {
        items.push_back(name);
      } else if (layers.empty() || layers.back().first != where) {
        layers.push_back({where, {name}});
      } else {
        layers.back().second.push_back(name);
      }
    }
    for (const auto& [where, names] : layers) {
      items.push_back(absl::StrCat(where.size() == 1 ? "layer " : "layers ", Ranges(where), " ",
                                   absl::StrJoin(names, " ")));
    }
    if (!items.empty()) absl::StrAppend(&text, ": ", absl::StrJoin(items, "; "));
    return text;
  }

 private:
  int64_t count_ = 0;
  int64_t elements_ = 0;
  // In the order of the model; the layers are none where the tensor is in none.
  std::vector<std::pair<std::string, std::set<int>>> names_;
};

// That each pattern of a flag matches something, and leaves something.
absl::Status CheckFlag(const char* flag, const std::string& list, bool frozen, const Model& model) {
  Config config;
  for (const std::string& pattern : PatternsOf(list)) {
    config.groups.push_back(GroupOf(pattern, frozen));
  }
  Model assigned = model;
  const absl::Status status = AssignGroups(config, &assigned);
  if (status.ok()) return status;
  // The index of the group means nothing to who gave the flag.
  const std::string why(status.message());
  const size_t at = absl::StartsWith(why, "groups[") ? why.find(": ") + 2 : 0;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why.substr(at)));
}

}  // namespace

void AddPatternGroups(const Options& options, Config& config) {
  for (const std::string& pattern : PatternsOf(options.no_decay)) {
    config.groups.push_back(GroupOf(pattern, false));
  }
  for (const std::string& pattern : PatternsOf(options.freeze)) {
    config.groups.push_back(GroupOf(pattern, true));
  }
}

absl::StatusOr<Model> GroupedModel(const Options& options, const llama::LlamaConfig& model,
                                   DType dtype) {
  Model grouped = llama::DescribeModel(model, dtype);
  ZERO_RETURN_IF_ERROR(AssignGroups(OptimizerConfig(options), &grouped));
  return grouped;
}

absl::Status CheckPatterns(const Options& options, const llama::LlamaConfig& model) {
  const Model described = llama::DescribeModel(model, DType::kF32);
  ZERO_RETURN_IF_ERROR(CheckFlag("--no_decay", options.no_decay, false, described));
  return CheckFlag("--freeze", options.freeze, true, described);
}

std::string DescribeGroups(const Options& options, const llama::LlamaConfig& model) {
  const absl::StatusOr<Model> grouped = GroupedModel(options, model, DType::kF32);
  if (!grouped.ok()) return "";  // CheckPatterns says why
  const Config config = OptimizerConfig(options);
  Tensors decayed, undecayed, frozen;
  for (const Unit& unit : grouped->units) {
    for (const Parameter& parameter : unit.parameters) {
      const bool decays = config.groups[parameter.group].weight_decay > 0;
      (!parameter.trainable ? frozen : decays ? decayed : undecayed).Add(parameter);
    }
  }
  std::string text =
      absl::StrCat("decay       ", decayed.text(), "\nno decay    ", undecayed.text(), "\n");
  if (frozen.count() > 0) absl::StrAppend(&text, "frozen      ", frozen.text(), "\n");
  return text;
}

}  // namespace zero::train
