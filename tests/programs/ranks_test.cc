#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

std::vector<MetricsRecord> Run(const TrainingFolder& folder, const std::string& dtype,
                               const std::string& ranks, const std::string& micro_batch,
                               const std::string& steps, const std::string& stage) {
  return ReadMetrics(
      folder.Metrics({"--dtype", dtype, "--ranks", ranks, "--micro_batch", micro_batch, "--steps",
                      steps, "--stage", stage, "--learning_rate=3e-3"}));
}

TEST_CASE("zero-train: N ranks with micro-batch b take the steps of one rank with N x b",
          "[programs]") {
  const bool tied = GENERATE(false, true);
  const std::string stage = GENERATE("0", "3");
  CAPTURE(tied, stage);
  const TrainingFolder folder(tied);
  const auto whole = Run(folder, "fp32", "1", "6", "20", stage);
  const auto split = Run(folder, "fp32", "3", "2", "20", stage);
  REQUIRE(whole.size() == 20);
  REQUIRE(split.size() == 20);
  CHECK(split[0].loss == Approx(whole[0].loss).epsilon(1e-6));
  CHECK(split[0].grad_norm == Approx(whole[0].grad_norm).epsilon(1e-6));
  for (size_t i = 0; i < 20; ++i) {
    CAPTURE(i);
    CHECK(split[i].loss == Approx(whole[i].loss).epsilon(1e-4));
    CHECK(split[i].tokens == whole[i].tokens);
  }
}

TEST_CASE("zero-train: in bf16 the first step is that of one rank to 2 in 100", "[programs]") {
  const TrainingFolder folder;
  const auto whole = Run(folder, "bf16", "1", "6", "1", "3");
  const auto split = Run(folder, "bf16", "3", "2", "1", "3");
  REQUIRE(whole.size() == 1);
  REQUIRE(split.size() == 1);
  CHECK(split[0].loss == Approx(whole[0].loss).epsilon(2e-2));
  CHECK(split[0].grad_norm == Approx(whole[0].grad_norm).epsilon(2e-2));
}

}  // namespace
}  // namespace zero::programs
