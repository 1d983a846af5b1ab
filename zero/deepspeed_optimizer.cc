#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "zero/deepspeed_sections.h"

namespace zero {
namespace {

bool NotNegative(double value) { return value >= 0; }
bool Decay(double value) { return value >= 0 && value < 1; }
bool PositiveFloat(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}

constexpr char kParams[] = "optimizer.params";
constexpr char kType[] = "optimizer.type";
constexpr char kDecayWanted[] = "at least 0 and below 1";

const char* TypeName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return "AdamW";
    case OptimizerKind::kAdam:
      return "Adam";
    case OptimizerKind::kSgd:
      return "SGD";
    case OptimizerKind::kLion:
      break;
  }
  return "Lion";
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                    OptimizerKind::kSgd, OptimizerKind::kLion};

// The optimizer that the caller asks for, if it does.
std::optional<OptimizerKind> GivenKind(DeepSpeedValues& values) {
  const std::optional<std::string> name = values.GivenAs<std::string>("optimizer");
  if (!name.has_value()) return std::nullopt;
  for (const OptimizerKind kind : kKinds) {
    if (*name == Name(kind)) return kind;
  }
  values.WrongGiven("optimizer", "adamw, adam, sgd or lion");
  return std::nullopt;
}

// Whether the decay is decoupled, as DeepSpeed's "Adam" has it too unless this is false.
std::optional<bool> ReadMode(DeepSpeedValues& values) {
  return values.MaybeSwitch(absl::StrCat(kParams, ".adam_w_mode"));
}

void NoteDecoupled(DeepSpeedValues& values) {
  values.Note(absl::StrCat(kParams,
                           ".adam_w_mode is false, but type AdamW decouples the decay; for the "
                           "other form the type is Adam"));
}

// The mode, where the kind is not the file's but the caller's or the default.
void CheckMode(DeepSpeedValues& values, OptimizerKind kind) {
  if (kind != OptimizerKind::kAdamW && kind != OptimizerKind::kAdam) return;
  const bool decoupled = kind == OptimizerKind::kAdamW;
  if (ReadMode(values).value_or(decoupled) == decoupled) return;
  const CallerValue* given = values.Given("optimizer");
  if (given == nullptr) return NoteDecoupled(values);
  const std::string mode = absl::StrCat(kParams, ".adam_w_mode");
  values.Problem(mode, absl::StrCat(mode, " is ", decoupled ? "false" : "true", ", but ",
                                    given->name, " is \"", Name(kind), "\""));
}

OptimizerKind ReadKind(DeepSpeedValues& values) {
  const bool in_file = values.Find(kType) != nullptr && !values.IsAuto(kType);
  const std::optional<OptimizerKind> known = GivenKind(values);
  if (!in_file) {
    const OptimizerKind kind = known.value_or(OptimizerKind::kAdamW);
    if (values.Find("optimizer") != nullptr && values.Find(kType) == nullptr &&
        values.Given("optimizer") == nullptr) {
      values.Problem("optimizer", "optimizer.type is missing; it must be AdamW, Adam, SGD or Lion");
    }
    values.Resolve(kType, Quoted(TypeName(kind)));
    CheckMode(values, kind);
    return kind;
  }
  const std::string type = values.Choice(kType, "AdamW", {"AdamW", "Adam", "SGD", "Lion"});
  OptimizerKind kind = OptimizerKind::kAdamW;
  if (type == "SGD") kind = OptimizerKind::kSgd;
  if (type == "Lion") kind = OptimizerKind::kLion;
  if (type == "AdamW" || type == "Adam") {
    const bool decoupled = ReadMode(values).value_or(true);
    if (type == "AdamW" && !decoupled) NoteDecoupled(values);
    if (type == "Adam" && !decoupled) kind = OptimizerKind::kAdam;
  }
  if (known.has_value() && *known != kind) {
    values.Problem(kType,
                   absl::StrCat(kType, " is \"", type, "\" (", TypeName(kind), "'s decay), but ",
                                values.Given("optimizer")->name, " is \"", Name(*known), "\""));
  }
  return kind;
}

void ReadBetas(DeepSpeedValues& values, Config& config) {
  const std::string betas = absl::StrCat(kParams, ".betas");
  double* targets[] = {&config.beta1, &config.beta2};
  for (size_t i = 0; i < 2; ++i) {
    const std::optional<double> item = values.Item(betas, i, 2, Decay, kDecayWanted);
    const std::string path = absl::StrCat(kParams, ".beta", i + 1);
    const CallerValue* given = values.Given(path);
    const std::optional<double> known = values.GivenAs<double>(path);
    if (known.has_value() && !Decay(*known)) values.WrongGiven(path, kDecayWanted);
    if (item.has_value() && known.has_value() && *item != *known) {
      values.Problem(betas, absl::StrCat(betas, "[", i, "] is ", ShortestText(*item), ", but ",
                                         given->name, " is ", ShortestText(*known)));
    }
    if (item.has_value() || known.has_value()) *targets[i] = item.has_value() ? *item : *known;
  }
  values.Resolve(betas, BetasText(config));
}

}  // namespace

std::string BetasText(const Config& config) {
  return absl::StrCat("[", ShortestText(config.beta1), ", ", ShortestText(config.beta2), "]");
}

void ReadOptimizer(DeepSpeedValues& values, DeepSpeedConfig& result) {
  const auto path = [](const char* name) { return absl::StrCat(kParams, ".", name); };
  Config& config = result.config;
  config.optimizer = ReadKind(values);
  const OptimizerKind kind = config.optimizer;
  const bool adam = kind == OptimizerKind::kAdamW || kind == OptimizerKind::kAdam;
  config.learning_rate = values.Number(path("lr"), config.learning_rate, NotNegative, "at least 0");
  config.groups[0].weight_decay = values.Number(path("weight_decay"), 0, NotNegative, "at least 0");
  if (kind == OptimizerKind::kLion) config.beta2 = 0.99;  // its paper's
  if (kind != OptimizerKind::kSgd) ReadBetas(values, config);
  if (adam) {
    values.Resolve(path("adam_w_mode"), kind == OptimizerKind::kAdamW ? "true" : "false");
    config.epsilon = values.Number(path("eps"), config.epsilon, PositiveFloat, "positive in fp32");
    config.bias_correction = values.Switch(path("bias_correction"), true);
  }
  if (kind == OptimizerKind::kSgd) {
    config.momentum = values.Number(path("momentum"), 0, Decay, kDecayWanted);
    config.nesterov = values.Switch(path("nesterov"), false);
    if (config.nesterov && config.momentum == 0) {
      values.Wrong(path("nesterov"), "true", "false where momentum is 0");
    }
  }
  values.RefuseUnread(kParams, TypeName(kind));
}

}  // namespace zero
