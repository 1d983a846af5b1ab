// A folder of configuration files from elsewhere, where there is one.
#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/catch.h"
#include "zero/deepspeed_config.h"

namespace zero {
namespace {

struct Wanted {
  int64_t ranks = 4;
  // A refused file: what each line of the error holds. Empty: it gives a configuration.
  std::vector<std::string> problems;
  int stage = 0;
  DType dtype = DType::kF32;
  int64_t train_batch_size = 0;
};

Wanted Gives(int stage, DType dtype, int64_t train_batch_size, int64_t ranks = 4) {
  return {ranks, {}, stage, dtype, train_batch_size};
}
Wanted Refuses(const std::vector<std::string>& problems, int64_t ranks = 4) {
  return {ranks, problems};
}

// What zero-train would do without other flags, on so many ranks. Files that say "auto" have
// micro-batches of one sample.
const std::map<std::string, Wanted>& Table() {
  constexpr DType kF32 = DType::kF32;
  constexpr DType kF16 = DType::kF16;
  constexpr DType kBF16 = DType::kBF16;
  static const auto* table = new std::map<std::string, Wanted>{
      {"ds_03", Gives(2, kBF16, 4)},
      {"ds_05", Gives(3, kBF16, 4)},
      {"ds_08", Gives(3, kBF16, 4)},
      {"ds_10", Gives(3, kBF16, 4)},
      {"ds_11", Gives(2, kF32, 4)},
      {"ds_19", Gives(2, kF32, 4)},
      {"ds_21", Gives(2, kBF16, 4)},
      {"ds_22", Gives(3, kBF16, 4)},
      {"ds_23", Gives(3, kBF16, 4)},
      {"ds_24", Refuses({"fp16.opt_level", "offload_param.device"})},
      {"ds_27", Gives(2, kF16, 4)},
      {"ds_30", Gives(3, kBF16, 4)},
      {"ds_32", Gives(2, kBF16, 4)},
      {"ds_33", Gives(3, kBF16, 4)},
      {"ds_36", Gives(2, kF16, 4, 2)},
      {"ds_37", Gives(2, kBF16, 4)},
      {"ds_38", Gives(0, kF32, 400)},
      {"ds_39", Gives(3, kBF16, 4)},
      {"ds_43", Gives(3, kBF16, 4)},
      {"ds_44", Gives(3, kF32, 4)},
      {"ds_47", Gives(3, kBF16, 4)},
      {"ds_49", Gives(2, kF16, 128)},
      {"ds_53", Gives(2, kF32, 4)},
      {"ds_55", Gives(0, kF32, 1024, 1)},
      {"ds_58", Gives(3, kBF16, 4)},
      {"ds_61", Gives(0, kF16, 2, 2)},
      {"ds_62", Gives(0, kF32, 256)},
      {"ds_64", Gives(3, kF16, 4)},
      {"ds_66", Gives(2, kBF16, 256)},
      {"ds_67", Refuses({"one of train_batch_size and train_micro_batch_size_per_gpu"})},
      {"ds_68", Gives(3, kF16, 8, 8)},
      {"ds_69", Refuses({"one of train_batch_size", "line 19 column 9: a comma is missing",
                         "\"aio\" belongs at the top", "line 26 column 9: a comma is missing"})},
      {"ds_71", Refuses({"line 17 column 1: something follows the end of the document"})},
      {"ds_72", Gives(1, kBF16, 4)},
  };
  return *table;
}

TEST_CASE("Configuration cases: each file gives its configuration or the right refusal") {
  const char* named = std::getenv("ZERO_CONFIG_CASES_DIR");
  const std::filesystem::path folder =
      named != nullptr ? named : ZERO_SOURCE_DIR "/../shared/cases/configs";
  if (!std::filesystem::is_directory(folder)) {
    WARN("ZERO_CONFIG_CASES_DIR is not given: no configuration files tried");
    return;
  }
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto wanted = Table().find(entry.path().stem().string());
    if (wanted == Table().end()) continue;
    ++found;
    const Wanted& want = wanted->second;
    ConfigContext context;
    context.world_size = want.ranks;
    context.world_size_source = "--ranks";
    context.hidden_size = 2048;
    context.total_steps = 1000;
    const auto config = ReadDeepSpeedConfig(entry.path().string(), context);
    INFO(entry.path() << ": " << config.status().ToString());
    if (want.problems.empty()) {
      REQUIRE(config.ok());
      CHECK(config->config.stage == want.stage);
      CHECK(config->dtype == want.dtype);
      CHECK(config->train_batch_size == want.train_batch_size);
      CHECK(config->train_batch_size ==
            config->micro_batch_size * config->accumulation_steps * want.ranks);
      // What is printed is a configuration too, and the same one.
      const auto again = ParseDeepSpeedConfig(config->resolved, context);
      REQUIRE_OK(again.status());
      CHECK(again->resolved == config->resolved);
      continue;
    }
    REQUIRE(absl::IsInvalidArgument(config.status()));
    const std::vector<std::string> lines =
        absl::StrSplit(std::string(config.status().message()), '\n');
    REQUIRE(lines.size() == want.problems.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      CHECK_THAT(lines[i], ContainsSubstring(want.problems[i]));
    }
  }
  CHECK(found == Table().size());
}

}  // namespace
}  // namespace zero
