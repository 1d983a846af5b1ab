#include "zero/parameter_groups.h"

#include "tests/catch.h"
#include "zero/plan.h"

namespace zero {
namespace {

Model TwoLayers() {
  Model model;
  for (int i = 0; i < 2; ++i) {
    Unit unit;
    unit.name = "layer" + std::to_string(i);
    for (const char* name : {".q.weight", ".q.bias", ".norm.weight"}) {
      Parameter parameter;
      parameter.name = unit.name + name;
      parameter.shape = {8};
      unit.parameters.push_back(parameter);
    }
    model.units.push_back(unit);
  }
  return model;
}

ParameterGroup Group(const std::string& pattern, double decay, bool frozen = false) {
  ParameterGroup group;
  group.pattern = pattern;
  group.weight_decay = decay;
  group.frozen = frozen;
  return group;
}

TEST_CASE("AssignGroups: a parameter gets the last group whose pattern its name matches",
          "[zero]") {
  Config config;
  config.groups = {{}, Group("*.weight", 0.1), Group("*norm*", 0), Group("layer1.q.*", 0, true)};
  Model model = TwoLayers();
  REQUIRE(AssignGroups(config, &model).ok());
  const std::vector<std::vector<int>> groups = {{1, 0, 2}, {3, 3, 2}};
  for (size_t u = 0; u < 2; ++u) {
    for (size_t p = 0; p < 3; ++p) {
      INFO(model.units[u].parameters[p].name);
      CHECK(model.units[u].parameters[p].group == groups[u][p]);
      CHECK(model.units[u].parameters[p].trainable == (groups[u][p] != 3));
    }
  }
  const std::vector<GroupContents> contents = CountGroups(config, model);
  CHECK(contents[0].parameters == 1);
  CHECK(contents[1].parameters == 1);
  CHECK(contents[2].parameters == 2);
  CHECK(contents[3].elements == 16);
}

TEST_CASE("AssignGroups: a group that was assigned by hand can be frozen", "[zero]") {
  Config config;
  config.groups = {{}, Group("", 0, true)};
  Model model = TwoLayers();
  model.units[0].parameters[1].group = 1;
  REQUIRE(AssignGroups(config, &model).ok());
  CHECK_FALSE(model.units[0].parameters[1].trainable);
  CHECK(model.units[0].parameters[0].trainable);
}

TEST_CASE("AssignGroups: a pattern without a match changes nothing and names the nearest name",
          "[zero][errors]") {
  Config config;
  config.groups = {Group("*.weight", 0), Group("layer1.k.bias", 0)};
  Model model = TwoLayers();
  for (Unit& unit : model.units) {
    for (Parameter& parameter : unit.parameters) parameter.group = 1;
  }
  const absl::Status status = AssignGroups(config, &model);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "groups[1]: no parameter matches 'layer1.k.bias'; the nearest name is 'layer1.q.bias'");
  CHECK(model.units[0].parameters[0].group == 1);
}

TEST_CASE("AssignGroups: a pattern matches the aliases of a parameter as well", "[zero]") {
  Model model = TwoLayers();
  model.units[0].parameters[0].aliases = {"other", "head.weight"};
  Config config;
  config.groups = {{}, Group("head.*", 0, true)};
  REQUIRE_OK(AssignGroups(config, &model));
  CHECK(model.units[0].parameters[0].group == 1);
  CHECK_FALSE(model.units[0].parameters[0].trainable);
  CHECK(model.units[0].parameters[1].group == 0);
  config.groups[1].pattern = "head.wieght";
  CHECK_THAT(std::string(AssignGroups(config, &model).message()),
             ContainsSubstring("the nearest name is 'head.weight'"));
}

TEST_CASE("AssignGroups: a pattern that cannot be meant as it is says why it matches nothing",
          "[zero][errors]") {
  Model model = TwoLayers();
  const auto error = [&](const std::string& pattern) {
    Config config;
    config.groups = {Group(pattern, 0)};
    return std::string(AssignGroups(config, &model).message());
  };
  CHECK(error("layer[01.q.*") ==
        "groups[0]: no parameter matches 'layer[01.q.*', which has a [ without its ]");
  CHECK_THAT(error("*layer[!]"), ContainsSubstring("which has a [ without its ]"));
  CHECK_THAT(error("*layer[]"), ContainsSubstring("which has a [ without its ]"));
  CHECK_THAT(error("layer1.q.bias\\"), ContainsSubstring("which ends with a \\"));
  for (const char* plain : {"layer[23]*", "layer[]]*", "\\[x", "x]"}) {
    CHECK_THAT(error(plain), ContainsSubstring("; the nearest name is 'layer"));
  }
  CHECK(error("layer[!0].q.bias").empty());
}

TEST_CASE("AssignGroups: groups that freeze everything are refused", "[zero][errors]") {
  Config config;
  config.groups = {Group("*", 0, true)};
  Model model = TwoLayers();
  const absl::Status status = AssignGroups(config, &model);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(std::string(status.message()).find("nothing to train") != std::string::npos);
}

TEST_CASE("MakePlan: patterns that nobody applied are refused by name", "[zero][errors]") {
  Config config;
  config.groups = {{}, Group("*norm*", 0), Group("layer1.q.*", 0, true)};
  Model model = TwoLayers();
  const auto message = [&] { return std::string(MakePlan(config, model, 1).status().message()); };
  CHECK(message() ==
        "parameter 'layer0.norm.weight' is trainable in group 0, but groups[1] is for it: call "
        "AssignGroups first");
  REQUIRE(AssignGroups(config, &model).ok());
  CHECK(MakePlan(config, model, 1).ok());
  model.units[1].parameters[0].trainable = true;
  CHECK(message().find("groups[2], frozen, is for it") != std::string::npos);
}

}  // namespace
}  // namespace zero
