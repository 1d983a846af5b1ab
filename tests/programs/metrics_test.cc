#include "examples/train/metrics.h"
#include <limits>
#include <map>

#include "examples/train/cost.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

TEST_CASE("zero-train: a line of metrics has all keys, and bytes as planned", "[programs]") {
  const bool tied = GENERATE(false, true);
  const int stage = GENERATE(0, 1, 2, 3);
  CAPTURE(tied, stage);
  const TrainingFolder folder(tied);
  const auto records = ReadMetrics(
      folder.Metrics({"--ranks=3", "--accumulation=2", "--stage", std::to_string(stage)}));
  REQUIRE(records.size() == 4);

  train::Options options;
  options.ranks = 3;
  options.accumulation = 2;
  options.sequence_length = 16;
  options.stage = stage;
  options.threads = 2;
  const auto model = llama::ParseConfig(SmallConfig(tied), "small");
  REQUIRE(model.ok());
  const auto cost = train::PlanCost(options, *model);
  REQUIRE(cost.ok());
  for (const MetricsRecord& record : records) {
    CHECK(record.keys == std::vector<std::string>{
                             "consecutive_skips", "grad_norm", "learning_rate", "loss",
                             "loss_scale", "memory", "next_loss_scale", "skipped", "skipped_steps",
                             "step", "step_seconds", "tokens", "tokens_per_second", "wire"});
    CHECK(record.step == &record - records.data() + 1);
    CHECK(record.tokens == 3 * 2 * 16);
    CHECK(record.learning_rate == 1e-2);
    CHECK_FALSE(record.skipped);
    CHECK(record.skipped_steps == 0);
    CHECK(record.consecutive_skips == 0);
    CHECK(record.next_loss_scale == 1);
    CHECK(record.tokens_per_second ==
          Approx(static_cast<double>(record.tokens) / record.step_seconds));
    for (int c = 0; c < kMemoryCategories; ++c) {
      const char* name = Name(static_cast<MemoryCategory>(c));
      CAPTURE(name);
      CHECK(record.current.at(name) == cost->memory[static_cast<size_t>(c)]);
      CHECK(record.peak.at(name) == cost->memory[static_cast<size_t>(c)]);
    }
    std::map<std::string, int64_t> planned;
    for (const auto& [name, bytes] : cost->wire) {
      if (bytes != 0) planned[name] = bytes;
    }
    CHECK(record.wire == planned);
  }
}

TEST_CASE("zero-train: the loss falls", "[programs]") {
  const TrainingFolder folder(GENERATE(false, true));
  const auto records = ReadMetrics(folder.Metrics({"--ranks=2", "--micro_batch=4", "--steps=60"}));
  REQUIRE(records.size() == 60);
  CHECK(records.front().loss == Approx(5.545).margin(0.1));  // ln 256
  CHECK(records.back().loss < 2.5);
}

TEST_CASE("MetricsLine: numbers read back exactly, and a loss that is no number is null") {
  train::StepReport report;
  report.step = 7;
  report.loss = 1.0 / 3;
  report.result.gradient_norm = 4.9e-324;
  report.result.learning_rate = 0.1;
  report.result.applied = true;
  report.tokens = 3;
  report.seconds = 2;
  const auto read = ReadMetrics(train::MetricsLine(report));
  REQUIRE(read.size() == 1);
  CHECK(read[0].loss == 1.0 / 3);
  CHECK(read[0].grad_norm == 4.9e-324);
  CHECK(read[0].learning_rate == 0.1);
  CHECK(read[0].tokens_per_second == 1.5);
  report.loss = std::numeric_limits<double>::quiet_NaN();
  CHECK(TextOf("loss", train::MetricsLine(report)) == std::vector<std::string>{"null"});
}

}  // namespace
}  // namespace zero::programs
