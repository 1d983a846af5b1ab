#include <cmath>
#include <optional>

#include "tests/catch.h"
#include "tests/golden/golden.h"
#include "zero/schedules.h"

namespace zero::golden {
namespace {

using Json = nlohmann::json;

// Fills fields from an object, and notices keys that nothing asked for.
class Filler {
 public:
  explicit Filler(const Json& fields) : fields_(fields) {}
  ~Filler() { CHECK(used_ == fields_.size()); }

  template <typename Value>
  Filler& Take(const char* name, Value* value) {
    if (fields_.contains(name)) {
      *value = fields_[name].get<Value>();
      ++used_;
    }
    return *this;
  }
  Filler& Take(const char* name, std::optional<int64_t>* value) {
    int64_t given = -1;
    Take(name, &given);
    if (given >= 0) *value = given;
    return *this;
  }
  Filler& Take(const char* name, WarmUpType* value) {
    std::string type = "log";
    Take(name, &type);
    *value = type == "log" ? WarmUpType::kLog : WarmUpType::kLinear;
    return *this;
  }
  Filler& Take(WarmUp* value) {
    return Take("warmup_steps", &value->warmup_steps).Take("warmup_ratio", &value->warmup_ratio);
  }

 private:
  const Json& fields_;
  size_t used_ = 0;
};

ConstantSchedule Constant(const Json& fields) {
  ConstantSchedule s;
  Filler filler(fields);
  filler.Take("lr", &s.lr).Take("warmup_steps", &s.warmup_steps);
  return s;
}
StepSchedule Step(const Json& fields) {
  StepSchedule s;
  Filler filler(fields);
  filler.Take("lr", &s.lr).Take("step_size", &s.step_size).Take("gamma", &s.gamma);
  return s;
}
LinearSchedule Linear(const Json& fields) {
  LinearSchedule s;
  Filler filler(fields);
  filler.Take("lr", &s.lr).Take("total_steps", &s.total_steps).Take(&s.warmup);
  return s;
}
CosineSchedule Cosine(const Json& fields) {
  CosineSchedule s;
  Filler filler(fields);
  filler.Take("lr", &s.lr)
      .Take("total_steps", &s.total_steps)
      .Take("num_cycles", &s.num_cycles)
      .Take(&s.warmup);
  return s;
}
CosineRestartsSchedule CosineRestarts(const Json& fields) {
  CosineRestartsSchedule s;
  Filler filler(fields);
  filler.Take("lr", &s.lr)
      .Take("total_steps", &s.total_steps)
      .Take("num_cycles", &s.num_cycles)
      .Take(&s.warmup);
  return s;
}
WarmupLr Warmup(const Json& fields) {
  WarmupLr s;
  Filler filler(fields);
  filler.Take("warmup_min_lr", &s.warmup_min_lr)
      .Take("warmup_max_lr", &s.warmup_max_lr)
      .Take("warmup_num_steps", &s.warmup_num_steps)
      .Take("warmup_type", &s.warmup_type);
  return s;
}
WarmupDecayLr WarmupDecay(const Json& fields) {
  WarmupDecayLr s;
  Filler filler(fields);
  filler.Take("total_num_steps", &s.total_num_steps)
      .Take("warmup_min_lr", &s.warmup_min_lr)
      .Take("warmup_max_lr", &s.warmup_max_lr)
      .Take("warmup_num_steps", &s.warmup_num_steps)
      .Take("warmup_type", &s.warmup_type);
  return s;
}
WarmupCosineLr WarmupCosine(const Json& fields) {
  WarmupCosineLr s;
  Filler filler(fields);
  filler.Take("lr", &s.lr)
      .Take("total_num_steps", &s.total_num_steps)
      .Take("warmup_min_ratio", &s.warmup_min_ratio)
      .Take("warmup_num_steps", &s.warmup_num_steps)
      .Take("cos_min_ratio", &s.cos_min_ratio)
      .Take("warmup_type", &s.warmup_type);
  return s;
}
OneCycle Cycle(const Json& fields) {
  OneCycle s;
  Filler filler(fields);
  filler.Take("cycle_min_lr", &s.cycle_min_lr)
      .Take("cycle_max_lr", &s.cycle_max_lr)
      .Take("cycle_first_step_size", &s.cycle_first_step_size)
      .Take("cycle_second_step_size", &s.cycle_second_step_size)
      .Take("cycle_first_stair_count", &s.cycle_first_stair_count)
      .Take("cycle_second_stair_count", &s.cycle_second_stair_count)
      .Take("decay_step_size", &s.decay_step_size)
      .Take("decay_lr_rate", &s.decay_lr_rate)
      .Take("cycle_min_mom", &s.cycle_min_mom)
      .Take("cycle_max_mom", &s.cycle_max_mom)
      .Take("decay_mom_rate", &s.decay_mom_rate);
  return s;
}
LrRangeTest RangeTest(const Json& fields) {
  LrRangeTest s;
  Filler filler(fields);
  filler.Take("lr_range_test_min_lr", &s.lr_range_test_min_lr)
      .Take("lr_range_test_step_size", &s.lr_range_test_step_size)
      .Take("lr_range_test_step_rate", &s.lr_range_test_step_rate)
      .Take("lr_range_test_staircase", &s.lr_range_test_staircase);
  return s;
}

absl::StatusOr<Schedule> Make(const std::string& name, const Json& fields) {
  if (name == "constant") return MakeSchedule(Constant(fields));
  if (name == "StepLR") return MakeSchedule(Step(fields));
  if (name == "linear") return MakeSchedule(Linear(fields));
  if (name == "cosine") return MakeSchedule(Cosine(fields));
  if (name == "cosine_with_restarts") return MakeSchedule(CosineRestarts(fields));
  if (name == "WarmupLR") return MakeSchedule(Warmup(fields));
  if (name == "WarmupDecayLR") return MakeSchedule(WarmupDecay(fields));
  if (name == "WarmupCosineLR") return MakeSchedule(WarmupCosine(fields));
  if (name == "OneCycle") return MakeSchedule(Cycle(fields));
  if (name == "LRRangeTest") return MakeSchedule(RangeTest(fields));
  return absl::UnimplementedError(name);
}

// Update `count` against theirs, from index `first` on.
void CheckAll(const Schedule& schedule, const std::vector<double>& theirs, size_t first,
              size_t lead) {
  REQUIRE(theirs.size() == 50 + lead);
  for (size_t i = first; i < 50; ++i) {
    const double expected = theirs[i + lead];
    const double value = schedule(static_cast<int64_t>(i) + 1);
    INFO("update " << i + 1 << ": " << value << ", theirs " << expected);
    CHECK(std::abs(value - expected) <= 1e-12 * std::abs(expected));
  }
}

TEST_CASE("Schedules: 50 updates have the rates of PyTorch and transformers and DeepSpeed") {
  const Json cases = Read("schedules.json")["cases"];
  CHECK(cases.size() > 50);
  for (const Json& one : cases) {
    const auto name = one["schedule"].get<std::string>();
    INFO(name << " " << one["fields"].dump());
    const absl::StatusOr<Schedule> schedule = Make(name, one["fields"]);
    REQUIRE_OK(schedule.status());
    const auto lead = one["lead"].get<size_t>();
    CheckAll(*schedule, one["lr"], one["first"], lead);
    if (!one.contains("beta1")) continue;
    const absl::StatusOr<Schedule> momentum = MakeMomentumSchedule(Cycle(one["fields"]));
    REQUIRE_OK(momentum.status());
    CheckAll(*momentum, one["beta1"], 1, lead);
  }
}

}  // namespace
}  // namespace zero::golden
