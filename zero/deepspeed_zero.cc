#include <limits>

#include "absl/strings/str_cat.h"
#include "zero/deepspeed_sections.h"

namespace zero {
namespace {

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
constexpr char kSection[] = "zero_optimization";
constexpr char kStage[] = "zero_optimization.stage";

std::string Path(const char* name) { return absl::StrCat(kSection, ".", name); }

int64_t ReadStage(DeepSpeedValues& values) {
  // Old forms: "zero_optimization": true and "stage": true are stage 1.
  for (const char* path : {kSection, kStage}) {
    const JsonValue* value = values.Find(path);
    if (value == nullptr || value->kind != JsonValue::Kind::kBoolean) continue;
    const int64_t stage = value->text == "true" ? 1 : 0;
    values.Note(absl::StrCat(path, " is ", value->text, ", an old form: taken as stage ", stage));
    values.Resolve(kStage, absl::StrCat(stage));
    const CallerValue* given = values.Given(kStage);
    const int64_t* known = given == nullptr ? nullptr : std::get_if<int64_t>(&given->value);
    if (known != nullptr && *known != stage) {
      values.Problem(
          path, absl::StrCat(path, " is ", value->text, ", but ", given->name, " is ", *known));
    }
    return stage;
  }
  if (values.IsAuto(kStage) && values.Given(kStage) == nullptr) {
    values.Problem(kStage, absl::StrCat(kStage,
                                        " is \"auto\", and nothing says which; it must be "
                                        "0, 1, 2 or 3"));
  }
  return values.Count(kStage, 0, 0, 3);
}

// A number of elements whose "auto" is a function of the model's hidden size.
int64_t ReadElements(DeepSpeedValues& values, const ConfigContext& context, const char* name,
                     int64_t otherwise, int64_t least, int64_t (*automatic)(int64_t hidden)) {
  const std::string path = Path(name);
  if (!values.IsAuto(path) || values.Given(path) != nullptr) {
    return values.Count(path, otherwise, least, kMany);
  }
  if (!context.hidden_size.has_value()) {
    values.Problem(path, absl::StrCat(path,
                                      " is \"auto\", and nothing says the hidden size of the "
                                      "model; it must be a number of elements"));
    return otherwise;
  }
  const int64_t elements = automatic(*context.hidden_size);
  values.Resolve(path, absl::StrCat(elements));
  return elements;
}

void ReadPrefetch(DeepSpeedValues& values, const ConfigContext& context, Config& config) {
  const char* name = "stage3_prefetch_bucket_size";
  const std::string path = Path(name);
  const int64_t elements = ReadElements(values, context, name, 50'000'000, 0,
                                        [](int64_t hidden) { return hidden * hidden * 9 / 10; });
  config.prefetch = elements == 0 ? 0 : config.prefetch;
  const CallerValue* given = values.Given("prefetch");
  constexpr int64_t kMostUnits = std::numeric_limits<int>::max();
  const int64_t units = values.GivenAs<int64_t>("prefetch").value_or(config.prefetch);
  const bool right = units >= 0 && units <= kMostUnits;
  if (!right) values.WrongGiven("prefetch", absl::StrCat("a whole number from 0 to ", kMostUnits));
  const bool in_file = values.Find(path) != nullptr && !values.IsAuto(path);
  if (right && given != nullptr && in_file && (units == 0) != (elements == 0)) {
    values.Problem(path, absl::StrCat(values.Spelled(path), " is ", elements, ", but ", given->name,
                                      " is ", units));
  }
  if (right) config.prefetch = static_cast<int>(units);
  if (config.prefetch == 0) values.Resolve(path, "0");
  if (in_file && elements != 0) {
    values.Note(absl::StrCat(values.Spelled(path),
                             " is not 0: weights are gathered ahead, here by ", config.prefetch,
                             " units"));
  }
}

// Not used here, but its "auto" has a value.
void ReadThreshold(DeepSpeedValues& values, const ConfigContext& context) {
  const std::string path = Path("stage3_param_persistence_threshold");
  if (!values.IsAuto(path)) {
    if (values.Find(path) != nullptr) (void)values.Count(path, 0, 0, kMany);
    return;
  }
  values.NoteIgnored(path);
  if (context.hidden_size.has_value()) {
    values.Resolve(path, absl::StrCat(10 * *context.hidden_size));
  }
}

}  // namespace

void ReadZero(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result) {
  const int64_t stage = ReadStage(values);
  result.config.stage = static_cast<int>(stage);
  result.config.reduce_bucket_size =
      ReadElements(values, context, "reduce_bucket_size", 500'000'000, 1,
                   [](int64_t hidden) { return hidden * hidden; });
  ReadPrefetch(values, context, result.config);
  ReadThreshold(values, context);
  ReadOffload(values, stage, result.config.offload);
  const std::string gather = Path("stage3_gather_16bit_weights_on_model_save");
  if (values.Find(gather) != nullptr) {
    result.config.gather_16bit_weights_on_model_save = values.Switch(gather, true);
  }
}

}  // namespace zero
