#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

TEST_CASE("zero-train: evaluation between steps changes nothing", "[programs]") {
  const bool tied = GENERATE(false, true);
  const std::string stage = GENERATE("0", "1", "2", "3");
  CAPTURE(tied, stage);
  const TrainingFolder folder(tied);
  const std::vector<std::string> flags = {"--ranks=2", "--accumulation=2", "--stage", stage,
                                          "--steps=5"};
  std::vector<std::string> evaluated = flags;
  evaluated.insert(evaluated.end(), {"--evaluate_every=2", "--evaluate_batches=3"});
  const std::string without = folder.Metrics(flags);
  const std::string with = folder.Metrics(evaluated);
  CHECK(WithoutTimes(with) == WithoutTimes(without));

  const auto records = ReadMetrics(with);
  REQUIRE(records.size() == 5);
  for (const MetricsRecord& record : records) {
    CAPTURE(record.step);
    CHECK(record.evaluation_loss.has_value() == (record.step % 2 == 0));
    CHECK((record.wire.count("evaluation") != 0) == (record.step % 2 == 0));
    if (record.evaluation_loss.has_value()) CHECK(*record.evaluation_loss < 6);
  }
}

TEST_CASE("zero-train: the evaluation loss is that of the text it names", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("other.txt"), std::string(500, 'z'));
  const auto loss = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--ranks=2", "--steps=40", "--evaluate_every=40"};
    flags.insert(flags.end(), more.begin(), more.end());
    const auto records = ReadMetrics(folder.Metrics(flags));
    return records.back().evaluation_loss.value();
  };
  CHECK(loss({}) + 1 < loss({"--evaluate_data", folder.File("other.txt")}));
}

}  // namespace
}  // namespace zero::programs
