// What a person and a program are told of steps that are skipped, and of runs that stop for them.
#include <cmath>
#include <iostream>
#include <sstream>

#include "examples/train/progress.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

// A report of step `step` that was skipped.
train::StepReport SkippedStep(int64_t step, double scale, double next_scale) {
  train::StepReport report;
  report.step = step;
  report.loss = 2.5;
  report.tokens = 100;
  report.seconds = 1;
  report.result.loss_scale = scale;
  report.result.next_loss_scale = next_scale;
  report.result.non_finite = 1234;
  report.result.first_non_finite = "model.norm.weight";
  report.result.owner = 2;
  return report;
}

// What Progress writes while it is shown a step that is applied, then `report`.
std::string Shown(const train::StepReport& report, bool terminal) {
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  train::Progress progress(20, 10, terminal);
  train::StepReport applied = report;
  applied.step = report.step - 1;
  applied.result.applied = true;
  progress.Show(applied);
  const std::string first = out.str();
  progress.Show(report);
  progress.Finish();
  std::cout.rdbuf(before);
  return out.str().substr(first.size());
}

TEST_CASE("Progress: a skipped step is one line with its scales and first parameter") {
  train::StepReport report = SkippedStep(4, 65536, 32768);
  const std::string line =
      "step  4/20  loss 2.5000  skipped: 1,234 inf or NaN in the gradient, the first in "
      "model.norm.weight (owner: rank 2); loss scale 65536 -> 32768\n";
  CHECK(Shown(report, false) == line);
  CHECK(Shown(report, true) == "\r" + line);
  report.result.producer = 1;
  CHECK_THAT(Shown(report, false), ContainsSubstring("(owner: rank 2, writer: rank 1); loss"));
}

TEST_CASE("Progress: a scale that stays is not told as a change") {
  const std::string line = Shown(SkippedStep(4, 65536, 65536), false);
  CHECK_THAT(line, ContainsSubstring("; loss scale 65536 stays\n"));
  CHECK_THAT(line, !ContainsSubstring("->"));
}

// A file for fp16 with a scale that falls from 2^`power` to 2^`least`; DeepSpeed's hysteresis, 2.
std::string ScaleFile(const TrainingFolder& folder, int power, int least) {
  const std::string path = folder.File("scale.json");
  std::ostringstream text;
  text << std::fixed << R"({"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true, )"
       << R"("initial_scale_power": )" << power << R"(, "min_loss_scale": )"
       << std::ldexp(1.0, least) << "}}";
  WriteFile(path, text.str());
  return path;
}

TEST_CASE("zero-train: skipped steps are counted and their scales told", "[programs]") {
  const std::string stage = GENERATE("0", "3");
  CAPTURE(stage);
  const TrainingFolder folder;
  const Outcome outcome =
      folder.Train({"--config", ScaleFile(folder, 40, 0), "--ranks=2", "--stage", stage,
                    "--log_every=1", "--steps=30", "--metrics", folder.File("metrics")});
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.status == 0);
  const auto records = ReadMetrics(ReadFile(folder.File("metrics")));
  REQUIRE(records.size() == 30);
  const double first = std::ldexp(1.0, 40);
  int64_t skipped = 0;
  for (int64_t step = 1; step <= 30; ++step) {
    CAPTURE(step);
    const MetricsRecord& record = records[static_cast<size_t>(step - 1)];
    skipped += record.skipped ? 1 : 0;
    CHECK(record.skipped_steps == skipped);
    if (!record.skipped) CHECK(record.consecutive_skips == 0);
    if (step != skipped) continue;  // before the first that is applied
    CHECK(record.consecutive_skips == step);
    CHECK(record.loss_scale == (step == 1 ? first : std::ldexp(first, 2 - static_cast<int>(step))));
    CHECK(record.next_loss_scale == std::ldexp(first, 1 - static_cast<int>(step)));
  }
  CHECK(skipped > 3);
  CHECK(skipped < 30);
  CHECK_THAT(outcome.out, ContainsSubstring("step  1/30  loss 5."));
  CHECK_THAT(outcome.out, ContainsSubstring("in the gradient, the first in model."));
  CHECK_THAT(outcome.out, ContainsSubstring("); loss scale 1099511627776 stays\n"));
  CHECK_THAT(outcome.out, ContainsSubstring("); loss scale 1099511627776 -> 549755813888\n"));
  CHECK_THAT(outcome.out, ContainsSubstring("; " + std::to_string(skipped) + " steps skipped\n"));
}

TEST_CASE("zero-train: a run that skips every step fails unless --max_skips is 0", "[programs]") {
  const std::string ranks = GENERATE("1", "3");
  CAPTURE(ranks);
  const TrainingFolder folder;
  const auto before = folder.Names();
  const std::vector<std::string> flags = {"--dtype=fp16", "--loss_scale=1e12", "--ranks",
                                          ranks,          "--evaluate_every",  "4",
                                          "--output",     folder.File("made")};
  const Outcome failed = folder.Train(flags);
  INFO(failed.out << failed.err);
  CHECK(failed.status == 1);
  CHECK(LinesOf(failed.err) == 1);
  CHECK_THAT(failed.err, Catch::Matchers::StartsWith(
                             "zero-train: every step was skipped, 1 to 4: in the first "));
  CHECK_THAT(failed.err, ContainsSubstring("the first in 'model."));
  CHECK_THAT(failed.out, ContainsSubstring("step 4/4  loss "));
  CHECK(folder.Names() == before);
  std::vector<std::string> asked = flags;
  asked.push_back("--max_skips=0");
  const Outcome outcome = folder.Train(asked);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("; 4 steps skipped\n"));
}

TEST_CASE("zero-train: a run that is stopped ends with one line and saves nothing", "[programs]") {
  const std::string stage = GENERATE("0", "1", "2", "3"), ranks = GENERATE("1", "3");
  CAPTURE(stage, ranks);
  const TrainingFolder folder;
  const std::string file = ScaleFile(folder, 40, 39);
  const auto before = folder.Names();
  const auto stopped = [&](std::vector<std::string> flags, size_t step, const std::string& why) {
    flags.insert(flags.end(), {"--stage", stage, "--ranks", ranks, "--steps=9", "--output",
                               folder.File("made"), "--metrics", folder.File("metrics")});
    const Outcome outcome = folder.Train(flags);
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, Catch::Matchers::StartsWith("zero-train: step " + std::to_string(step) +
                                                        ": " + why));
    CHECK_THAT(outcome.err, ContainsSubstring("the first in 'model."));
    CHECK_THAT(outcome.err, ContainsSubstring("owned by rank "));
    CHECK(ReadMetrics(ReadFile(folder.File("metrics"))).size() == step - 1);
    std::filesystem::remove(folder.File("metrics"));
    CHECK(folder.Names() == before);
    return outcome.err;
  };
  const std::vector<std::string> huge = {"--dtype=fp16", "--loss_scale=1e12"};
  CHECK_THAT(stopped({huge[0], huge[1], "--max_skips=3"}, 3, "3 steps in a row were skipped"),
             !ContainsSubstring("wrote the first"));
  CHECK_THAT(stopped({huge[0], huge[1], "--max_skips=2", "--check_gradients"}, 2, "2 steps"),
             ContainsSubstring("rank 0 wrote the first, in 'model."));
  // The first overflow is forgiven, the second brings the scale to its minimum, the third stops.
  stopped({"--config", file}, 3, "the loss scale is at its minimum 5.49756e+11");
}

TEST_CASE("zero-train: a rate that diverges stops a run in bf16 too", "[programs]") {
  const TrainingFolder folder;
  const Outcome outcome =
      folder.Train({"--dtype=bf16", "--learning_rate=1000", "--weight_decay=1000", "--steps=50",
                    "--max_skips=4", "--ranks=2"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.err, ContainsSubstring(": 4 steps in a row were skipped. "));
  CHECK_THAT(outcome.out, ContainsSubstring("; loss scale 1 stays\n"));
}

TEST_CASE("zero-train: --check_gradients changes no number", "[programs]") {
  const TrainingFolder folder;
  const auto text = [&](const std::string& flag) {
    return WithoutTimes(folder.Metrics({"--ranks=2", "--accumulation=2", "--stage=2", flag}));
  };
  const std::string unchecked = text("--nocheck_gradients");
  CHECK(TextOf("loss", text("--check_gradients")) == TextOf("loss", unchecked));
}

}  // namespace
}  // namespace zero::programs
