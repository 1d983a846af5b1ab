// Which parameter belongs to which group, by name.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/config.h"
#include "zero/model.h"

namespace zero {

// Sets Parameter::group to the last of `config.groups` whose pattern the name or an alias matches
// (fnmatch(3) without flags: * also stands for dots, which names have), and Parameter::trainable to
// false where that group is frozen; a frozen group's parameters assigned by hand likewise. Before
// MakePlan and Create. kInvalidArgument: a pattern that no name matches, with the name nearest to
// it; frozen groups that leave nothing to train.
absl::Status AssignGroups(const Config& config, Model* model);

// The group that AssignGroups gives the parameter: Parameter::group where no pattern matches.
int GroupOf(const Config& config, const Parameter& parameter);

// What a group got, for people.
struct GroupContents {
  int64_t parameters = 0;  // tensors
  int64_t elements = 0;
};
// By group of `config`; a parameter of a group that does not exist is left out.
std::vector<GroupContents> CountGroups(const Config& config, const Model& model);

}  // namespace zero
