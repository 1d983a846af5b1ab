#include "zero/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/nearest_name.h"

namespace zero {
namespace {

bool Matches(const std::string& pattern, const Parameter& parameter) {
  if (pattern.empty()) return false;
  const auto matches = [&](const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  return matches(parameter.name) ||
         std::any_of(parameter.aliases.begin(), parameter.aliases.end(), matches);
}

// What keeps fnmatch from reading a pattern as it was meant: it then takes the sign as it is, or
// matches nothing. Empty: nothing does.
std::string Malformed(const std::string& pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {  // the next one stands for itself
      if (++i == pattern.size()) return "ends with a \\";
      continue;
    }
    if (pattern[i] != '[') continue;
    // A ] that comes first, or after a !, is one of the characters.
    const size_t first = i + (pattern.compare(i + 1, 1, "!") == 0 ? 2 : 1);
    i = pattern.find(']', first + 1);
    if (i == std::string::npos) return "has a [ without its ]";
  }
  return "";
}

absl::Status RequireMatch(const Config& config, int group, const Model& model) {
  const std::string& pattern = config.groups[group].pattern;
  if (pattern.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (Matches(pattern, parameter)) return absl::OkStatus();
      names.push_back(parameter.name);
      names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
    }
  }
  const std::string malformed = Malformed(pattern);
  return absl::InvalidArgumentError(
      absl::StrCat("groups[", group, "]: no parameter matches '", pattern, "'",
                   malformed.empty() ? "; the nearest name is '" + NearestName(pattern, names) + "'"
                                     : ", which " + malformed));
}

}  // namespace

int GroupOf(const Config& config, const Parameter& parameter) {
  int group = parameter.group;
  for (int g = 0; g < static_cast<int>(config.groups.size()); ++g) {
    if (Matches(config.groups[g].pattern, parameter)) group = g;
  }
  return group;
}

absl::Status AssignGroups(const Config& config, Model* model) {
  const int groups = static_cast<int>(config.groups.size());
  for (int g = 0; g < groups; ++g) ZERO_RETURN_IF_ERROR(RequireMatch(config, g, *model));
  Model assigned = *model;
  bool frozen = false;
  bool trainable = false;
  for (Unit& unit : assigned.units) {
    for (Parameter& parameter : unit.parameters) {
      const int g = parameter.group = GroupOf(config, parameter);
      if (g >= 0 && g < groups && config.groups[g].frozen) {
        frozen = true;
        parameter.trainable = false;
      }
      trainable = trainable || parameter.trainable;
    }
  }
  if (frozen && !trainable) {
    return absl::InvalidArgumentError(
        "nothing to train: the frozen groups hold every parameter of the model");
  }
  *model = std::move(assigned);
  return absl::OkStatus();
}

std::vector<GroupContents> CountGroups(const Config& config, const Model& model) {
  std::vector<GroupContents> contents(config.groups.size());
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.group < 0 || parameter.group >= static_cast<int>(contents.size())) continue;
      ++contents[parameter.group].parameters;
      contents[parameter.group].elements += ElementCount(parameter);
    }
  }
  return contents;
}

}  // namespace zero
