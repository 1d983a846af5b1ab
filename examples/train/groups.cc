#include "examples/train/groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
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

// "{0-3,5}" for {0, 1, 2, 3, 5}, "4" for {4}.
std::string Ranges(const std::set<int64_t>& numbers) {
  std::vector<std::string> ranges;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t first = *at;
    int64_t last = first;
    while (++at != numbers.end() && *at == last + 1) ++last;
    ranges.push_back(last == first ? absl::StrCat(first) : absl::StrCat(first, "-", last));
  }
  const std::string text = absl::StrJoin(ranges, ",");
  return numbers.size() < 2 ? text : absl::StrCat("{", text, "}");
}

// Tensors of one kind, by names that --no_decay and --freeze take: those that every layer has of it
// by a pattern, "*.q_proj.weight". Only where some layers have it, and not one alone, the layers
// stand in the name: "model.layers.{0-3}.self_attn.q_proj.weight".
class Tensors {
 public:
  explicit Tensors(int64_t layers) : layers_(layers) {}

  void Add(const Parameter& parameter) {
    ++count_;
    elements_ += ElementCount(parameter);
    std::vector<std::string> parts = absl::StrSplit(parameter.name, '.');
    int64_t layer = 0;
    const bool in_layer = parts.size() > 3 && absl::SimpleAtoi(parts[2], &layer);
    if (in_layer) parts[2] = kLayer;
    const std::string key = absl::StrJoin(parts, ".");
    auto found = std::find_if(names_.begin(), names_.end(),
                              [&](const auto& name) { return name.first == key; });
    if (found == names_.end()) found = names_.insert(found, {key, {}});
    if (in_layer) found->second.insert(layer);
  }

  int64_t count() const { return count_; }

  std::string text() const {
    std::vector<std::string> items;
    for (const auto& [key, where] : names_) {
      if (static_cast<int64_t>(where.size()) == layers_ && layers_ > 1) {
        const std::vector<std::string> parts = absl::StrSplit(key, '.');
        items.push_back(absl::StrCat("*.", parts[parts.size() - 2], ".", parts.back()));
      } else {
        items.push_back(absl::StrReplaceAll(key, {{kLayer, Ranges(where)}}));
      }
    }
    return absl::StrCat(count_, count_ == 1 ? " tensor, " : " tensors, ",
                        support::WithSeparators(elements_), " elements", items.empty() ? "" : ": ",
                        absl::StrJoin(items, ", "));
  }

 private:
  static constexpr const char* kLayer = "<layer>";

  const int64_t layers_;
  int64_t count_ = 0;
  int64_t elements_ = 0;
  // In the order of the model; the layers are none where the tensor is in none.
  std::vector<std::pair<std::string, std::set<int64_t>>> names_;
};

// The names that a text is a part of, "; '*norm*' matches ..." after a message; empty: none.
std::string Containing(const std::string& text, const Model& model) {
  if (absl::StrContains(text, "*")) return "";
  std::vector<std::string> names;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (absl::StrContains(parameter.name, text)) names.push_back(parameter.name);
    }
  }
  if (names.empty()) return "";
  return absl::StrCat("; '*", text, "*' matches ", names.front(),
                      names.size() == 1 ? "" : absl::StrCat(" and ", names.size() - 1, " more"));
}

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
  for (const ParameterGroup& group : config.groups) {
    const std::string unmatched = absl::StrCat("no parameter matches '", group.pattern, "'");
    const std::string contains = Containing(group.pattern, model);
    if (contains.empty() || !absl::StartsWith(why.substr(at), unmatched)) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", unmatched, contains));
  }
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
  const int64_t layers = model.num_hidden_layers;
  Tensors decayed(layers), undecayed(layers), frozen(layers);
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
