// Ranks that create optimizers which differ are told so, before anything is allocated.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"

namespace zero::test {
namespace {

using Change = std::function<void(Config&, Model&)>;

// What Create returns on each of three ranks where `change` is made on `changed` alone; afterwards
// each creates the same optimizer with the same group.
std::vector<absl::Status> CreateOnThree(int changed, const Change& change) {
  std::vector<absl::Status> statuses(3, absl::UnknownError("not run"));
  LocalWorld world(3);
  const absl::Status all = RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    Config config;
    config.groups = {{}, {}};
    Model model = SimpleModel(40, 4);
    HostDevice device;
    {
      Config own = config;
      Model own_model = model;
      if (group->rank() == changed) change(own, own_model);
      statuses[group->rank()] = ShardedOptimizer::Create(own, own_model, &device, group).status();
    }
    for (const MemoryUse& use : device.memory()) {
      if (use.current != 0) return absl::InternalError("something stays allocated");
    }
    ZERO_ASSIGN_OR_RETURN(const auto optimizer,
                          ShardedOptimizer::Create(config, model, &device, group));
    const MemoryTable memory = device.memory();
    for (int c = 0; c < kMemoryCategories; ++c) {
      if (memory[c].peak == optimizer->plan().bytes[c]) continue;
      return absl::InternalError(absl::StrCat(Name(static_cast<MemoryCategory>(c)), ": peak ",
                                              memory[c].peak, ", planned ",
                                              optimizer->plan().bytes[c]));
    }
    return absl::OkStatus();
  });
  CHECK_OK(all);
  return statuses;
}

TEST_CASE("Create: the first rank and field that differ are named on every rank",
          "[zero][errors][thread]") {
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](Config& c, Model&) { c.stage = 2; }, "'stage: 3' on rank 0, 'stage: 2' on rank "},
      {[](Config& c, Model&) { c.learning_rate = 2e-3; }, "'learning_rate: "},
      {[](Config& c, Model&) { c.schedule = [](int64_t) { return 1e-3; }; }, "'learning_rate(1): "},
      {[](Config& c, Model&) { c.groups[1].weight_decay = 0.5; },
       "'groups[1].weight_decay: 0' on rank 0, 'groups[1].weight_decay: 0.5' on rank "},
      {[](Config& c, Model&) { c.groups.push_back({}); }, "'groups[2].learning_rate_factor: 1'"},
      {[](Config& c, Model&) { c.prefetch = 3; }, "'prefetch: 1' on rank 0, 'prefetch: 3'"},
      // As many bytes with padding.
      {[](Config&, Model& m) { m.units[31].parameters[0].shape = {8}; },
       "'parameter 'u31.w' of unit 'u31': fp32 [4], group 0, trainable' on rank 0, 'parameter "
       "'u31.w' of unit 'u31': fp32 [8], group 0, trainable' on rank "},
      {[](Config&, Model& m) { m.units[7].resident = true; }, "'unit 'u7': not resident'"},
      {[](Config&, Model& m) { m.units[39].parameters[0].group = 1; }, "fp32 [4], group 1"},
      {[](Config&, Model& m) { m.units.pop_back(); }, "'nothing more' on rank "}};
  for (const int changed : {1, 2}) {
    for (const auto& [change, words] : cases) {
      for (const absl::Status& status : CreateOnThree(changed, change)) {
        INFO(words << " in " << status.ToString());
        CHECK(absl::IsInvalidArgument(status));
        CHECK_THAT(std::string(status.message()),
                   ContainsSubstring(absl::StrCat("ranks 0 and ", changed, " differ")) &&
                       ContainsSubstring(words));
      }
    }
  }
  for (const absl::Status& status : CreateOnThree(0, [](Config&c, Model&) { c.clip_norm = 1; })) {
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("ranks 0 and 1 differ: 'clip_norm: 1' on rank 0"));
  }
}

TEST_CASE("Create: of long lines the part that differs is shown and what is cut off is marked",
          "[zero][errors][thread]") {
  const auto told = [](size_t changed, const std::string& more) {
    const auto change = [=](Config&, Model& model) {
      std::string name(1000, 'x');
      if (changed < name.size()) name[changed] = 'y';
      model.units[7].parameters[0].aliases = {name + more};
    };
    std::vector<absl::Status> statuses(2);
    LocalWorld world(2);
    CHECK_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
      Config config;
      Model model = SimpleModel(40, 4);
      model.units[7].parameters[0].aliases = {std::string(1000, 'x')};
      if (group->rank() == 1) change(config, model);
      HostDevice device;
      statuses[group->rank()] = ShardedOptimizer::Create(config, model, &device, group).status();
      return absl::OkStatus();
    }));
    CHECK(statuses[0] == statuses[1]);
    CHECK(absl::IsInvalidArgument(statuses[0]));
    return std::string(statuses[0].message());
  };
  const std::string start = "differ: 'parameter 'u7.w' of unit 'u7'";
  CHECK_THAT(told(20, ""), ContainsSubstring(start) && ContainsSubstring("xxx...' on rank 0") &&
                               ContainsSubstring("yxxx") && ContainsSubstring("xxx...' on rank 1"));
  const std::string middle = told(500, "");
  CHECK_THAT(middle, ContainsSubstring("differ: '...xxx") && ContainsSubstring("xyx") &&
                         ContainsSubstring("xxx...' on rank 0, '...xxx") &&
                         ContainsSubstring("xxx...' on rank 1"));
  CHECK(middle.size() < 1200);
  CHECK_THAT(told(999, ""),
             ContainsSubstring("xxx' on rank 0") && ContainsSubstring("xy' on rank 1"));
  CHECK_THAT(told(1000, "z"),
             ContainsSubstring("xxx' on rank 0") && ContainsSubstring("xz' on rank 1"));
}

TEST_CASE("Create: schedules may differ in their last digits except in stage 0",
          "[zero][errors][thread]") {
  const auto created = [](int stage, double factor) {
    LocalWorld world(2);
    return RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
      Config config;
      config.stage = stage;
      const double rate = group->rank() == 0 ? 1e-3 / 3 : 1e-3 / 3 * factor;
      config.schedule = [rate](int64_t) { return rate; };
      HostDevice device;
      return ShardedOptimizer::Create(config, SimpleModel(3, 4), &device, group).status();
    });
  };
  for (const int stage : {1, 2, 3}) {
    CHECK_OK(created(stage, 1 + 1e-15));
    CHECK(absl::IsInvalidArgument(created(stage, 1 + 1e-10)));
  }
  CHECK(absl::IsInvalidArgument(created(0, 1 + 1e-15)));
}

TEST_CASE("Create: what ranks may choose for themselves is not compared", "[zero][thread]") {
  for (const absl::Status& status :
       CreateOnThree(1, [](Config&c, Model&) { c.poison_slots = true; })) {
    CHECK_OK(status);
  }
}

}  // namespace
}  // namespace zero::test
