#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

TEST_CASE("zero-train: loss and norm of all stages are the same text", "[programs]") {
  const bool tied = GENERATE(false, true);
  const std::string dtype = GENERATE("fp32", "bf16", "fp16");
  const std::string ranks = GENERATE("2", "3");
  CAPTURE(tied, dtype, ranks);
  const TrainingFolder folder(tied);
  const auto metrics = [&](const std::string& stage) {
    return folder.Metrics({"--shuffle=false", "--dtype", dtype, "--ranks", ranks, "--stage", stage,
                           "--micro_batch", "2", "--weight_decay", "0.1"});
  };
  const std::string first = metrics("0");
  CHECK(TextOf("loss", first).size() == 4);
  for (const std::string stage : {"1", "2", "3"}) {
    CAPTURE(stage);
    const std::string other = metrics(stage);
    CHECK(TextOf("loss", other) == TextOf("loss", first));
    CHECK(TextOf("grad_norm", other) == TextOf("grad_norm", first));
  }
}

TEST_CASE("zero-train: stages 0 and 1, and 2 and 3, agree in text over several micro-batches",
          "[programs]") {
  const std::string accumulation_dtype = GENERATE("fp32", "bf16");
  const TrainingFolder folder;
  const auto losses = [&](const std::string& stage) {
    return TextOf("loss", folder.Metrics({"--ranks=2", "--accumulation=3", "--stage", stage,
                                          "--accumulation_dtype", accumulation_dtype}));
  };
  CHECK(losses("0") == losses("1"));
  CHECK(losses("2") == losses("3"));
}

TEST_CASE("zero-train: the same flags give the same text, whatever the threads and the prefetch",
          "[programs]") {
  const TrainingFolder folder;
  const std::vector<std::string> flags = {"--ranks=3", "--stage=3", "--micro_batch=2"};
  const std::string first = folder.Metrics(flags);
  auto others = flags;
  others.insert(others.end(), {"--threads=1", "--reduce_bucket_size=1000"});
  const std::string second = folder.Metrics(others);
  CHECK(TextOf("loss", first) == TextOf("loss", second));
  CHECK(TextOf("grad_norm", first) == TextOf("grad_norm", second));
  others.insert(others.end(), {"--prefetch=0", "--simd=sse4"});
  CHECK(TextOf("loss", first).front() != "");
  CHECK(TextOf("loss", folder.Metrics(others)).size() == 4);
}

}  // namespace
}  // namespace zero::programs
