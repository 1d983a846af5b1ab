#include "zero/deepspeed_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "io/relaxed_json.h"
#include "zero/deepspeed_resolved.h"
#include "zero/deepspeed_sections.h"
#include "zero/deepspeed_values.h"

namespace zero {
namespace {

constexpr int64_t kMostBytes = 16 << 20;

absl::Status AllProblems(std::vector<JsonProblem> problems, const std::string& name) {
  const auto before = [](const JsonProblem& a, const JsonProblem& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  };
  std::stable_sort(problems.begin(), problems.end(), before);
  const auto line = [&](std::string* out, const JsonProblem& problem) {
    const bool placed = problem.place.line > 0;
    absl::StrAppend(out, name, ": ", placed ? ToString(problem.place) + ": " : "", problem.text);
  };
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n", line));
}

void ReadAll(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result) {
  ReadBatchSizes(values, context, result);
  ReadPrecision(values, context, result);
  ReadGradients(values, context, result);
  ReadOptimizer(values, result);
  ReadScheduler(values, context, result);
  ReadZero(values, context, result);
  result.steps_per_print = values.Count("steps_per_print", 10, 1, int64_t{1} << 53);
}

}  // namespace

absl::StatusOr<DeepSpeedConfig> ParseDeepSpeedConfig(const std::string& text,
                                                     const ConfigContext& context,
                                                     const std::string& name) {
  if (context.world_size < 1) {  // other values are divided by it
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": the world size is ", context.world_size,
                     context.world_size_source.empty() ? "" : ", from ", context.world_size_source,
                     "; it must be at least 1"));
  }
  std::vector<JsonProblem> problems;
  const std::optional<JsonValue> root = ReadRelaxedJson(text, problems);
  if (!root.has_value()) return AllProblems(std::move(problems), name);
  DeepSpeedConfig result;
  DeepSpeedValues values(*root, context, problems);
  if (root->kind == JsonValue::Kind::kObject) ReadAll(values, context, result);
  if (!problems.empty()) return AllProblems(std::move(problems), name);
  // What the ranges above let through.
  const absl::Status valid = Validate(result.config);
  if (!valid.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", valid.message()));
  result.notes = values.notes();
  result.values = values.resolved();
  result.resolved = NestedJson(result.values);
  return result;
}

absl::StatusOr<DeepSpeedConfig> ReadDeepSpeedConfig(const std::string& path,
                                                    const ConfigContext& context) {
  const auto wrong = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  };
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return wrong(error ? error.message() : "no such file");
  }
  if (std::filesystem::is_directory(path, error)) return wrong("is a folder, not a file");
  // A pipe would be waited for.
  if (!std::filesystem::is_regular_file(path, error)) return wrong("is no regular file");
  std::ifstream in(path, std::ios::binary);
  if (!in) return wrong("cannot be opened");
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return wrong("cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMostBytes) return wrong(absl::StrCat("has more than ", kMostBytes, " bytes"));
  if (text.empty()) return wrong("is empty");
  return ParseDeepSpeedConfig(text, context, path);
}

}  // namespace zero
