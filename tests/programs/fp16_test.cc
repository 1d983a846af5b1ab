// zero-train --dtype fp16: losses are scaled, and the numbers stay those of fp32 to rounding.
#include <cmath>

#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

using Flags = std::vector<std::string>;

Flags Joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST_CASE("zero-train --dtype fp16: losses and norms are those of fp32 to rounding", "[programs]") {
  const std::string stage = GENERATE("0", "1", "2", "3");
  CAPTURE(stage);
  const TrainingFolder folder(stage == "2");
  const Flags flags = {"--ranks=2",
                       "--stage",
                       stage,
                       "--accumulation=2",
                       "--micro_batch=2",
                       "--steps",
                       "12",
                       "--learning_rate=3e-3",
                       "--evaluate_every",
                       "12",
                       "--evaluate_batches=2"};
  const auto wide = ReadMetrics(folder.Metrics(Joined(flags, {"--dtype=fp32"})));
  const auto half =
      ReadMetrics(folder.Metrics(Joined(flags, {"--dtype=fp16", "--loss_scale=4096"})));
  REQUIRE(wide.size() == 12);
  REQUIRE(half.size() == 12);
  for (size_t i = 0; i < half.size(); ++i) {
    CAPTURE(i, half[i].loss - wide[i].loss);
    CHECK_FALSE(half[i].skipped);
    CHECK(half[i].loss_scale == 4096);
    CHECK(wide[i].loss_scale == 1);
    CHECK(half[i].loss == Approx(wide[i].loss).epsilon(1e-3));
    CHECK(half[i].grad_norm == Approx(wide[i].grad_norm).epsilon(1e-2));
    CHECK(half[i].tokens == wide[i].tokens);
  }
  CHECK(*half.back().evaluation_loss == Approx(*wide.back().evaluation_loss).epsilon(1e-3));
  CHECK(half.back().loss < half.front().loss - 0.5);
}

TEST_CASE("zero-train --dtype fp16: a micro-batch of many tokens bears the first dynamic scale",
          "[programs]") {
  const TrainingFolder folder;
  const auto records = ReadMetrics(folder.Metrics(
      {"--dtype=fp16", "--micro_batch=16", "--sequence_length=32", "--steps=2", "--stage=1"}));
  REQUIRE(records.size() == 2);
  CHECK(records[0].loss_scale == 65536);
  CHECK_FALSE(records[0].skipped);
  CHECK_FALSE(records[1].skipped);
  CHECK(records[0].tokens == 16 * 32);
}

TEST_CASE("zero-train --dtype fp16: a scale that overflows leaves the weights as they were",
          "[programs]") {
  const std::string stage = GENERATE("0", "3");
  const TrainingFolder folder;
  const auto saved = [&](const std::string& name, const Flags& flags) {
    const auto records = ReadMetrics(folder.Metrics(Joined(
        {"--dtype=fp16", "--ranks=2", "--stage", stage, "--output", folder.File(name)}, flags)));
    CHECK(records.size() == 4);
    for (const MetricsRecord& record : records) {
      CHECK(record.skipped == (name == "overflowing"));
      CHECK(std::isfinite(record.grad_norm) == !record.skipped);
    }
    return ReadFile(folder.File(name + "/model.safetensors"));
  };
  const std::string initial = saved("initial", {"--learning_rate=0"});
  CHECK(saved("overflowing", {"--loss_scale=1e12", "--max_skips=0"}) == initial);
  CHECK(saved("trained", {"--loss_scale=1024"}) != initial);
  const auto file = SafetensorsFile::Open(folder.File("trained/model.safetensors"));
  REQUIRE(file.ok());
  CHECK((*file->Find("lm_head.weight"))->dtype == "F16");
}

TEST_CASE("zero-train --dtype fp16: gradients may be kept in fp16", "[programs]") {
  const TrainingFolder folder;
  const auto loss = [&](const std::string& accumulation) {
    return ReadMetrics(folder.Metrics({"--dtype=fp16", "--loss_scale=1024", "--accumulation=3",
                                       "--accumulation_dtype", accumulation}))
        .back()
        .loss;
  };
  const double narrow = loss("fp16"), wide = loss("fp32");
  CHECK(narrow == Approx(wide).epsilon(1e-3));
  CHECK(narrow != wide);
}

}  // namespace
}  // namespace zero::programs
