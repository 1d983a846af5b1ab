// The programs on a CUDA device that tests stand in for.
#include "examples/train/cost.h"
#include "tests/catch.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

constexpr const char* kStandin = "zero-train-standin";

TEST_CASE("zero-train --device cuda: losses and norms are the host's to rounding", "[programs]") {
  const std::string dtype = GENERATE("fp32", "bf16", "fp16"), stage = GENERATE("0", "1", "2", "3");
  CAPTURE(dtype, stage);
  const TrainingFolder folder(stage == "1");
  const std::vector<std::string> flags = {"--dtype",          dtype,
                                          "--stage",          stage,
                                          "--loss_scale",     dtype == "fp16" ? "1024" : "1",
                                          "--accumulation=2", "--weight_decay=0.1"};
  const auto host = ReadMetrics(folder.Metrics(flags));
  std::vector<std::string> on_cuda = flags;
  on_cuda.insert(on_cuda.end(), {"--device=cuda"});
  const auto cuda = ReadMetrics(folder.Metrics(on_cuda, kStandin));
  REQUIRE(host.size() == 4);
  REQUIRE(cuda.size() == 4);
  const double bound = dtype == "fp32" ? 1e-5 : dtype == "bf16" ? 2e-2 : 2e-3;
  const double norm_bound = dtype == "fp32" ? 1e-4 : 2.5 * bound;
  for (size_t i = 0; i < host.size(); ++i) {
    CAPTURE(i, cuda[i].loss - host[i].loss);
    CHECK(cuda[i].loss == Approx(host[i].loss).epsilon(bound));
    CHECK(cuda[i].grad_norm == Approx(host[i].grad_norm).epsilon(norm_bound));
    CHECK(cuda[i].tokens == host[i].tokens);
    CHECK(cuda[i].wire == host[i].wire);
  }
  CHECK(cuda.back().loss < cuda.front().loss);
}

TEST_CASE("zero-train --device cuda: offloading changes no loss and no norm",
          "[programs][offload]") {
  const TrainingFolder folder;
  const std::string stage = GENERATE("--stage=1", "--stage=3");
  CAPTURE(stage);
  const std::vector<std::string> flags = {"--device=cuda", "--ranks=2", stage, "--accumulation=2"};
  const std::string kept = folder.Metrics(flags, kStandin);
  REQUIRE(TextOf("loss", kept).size() == 4);
  const std::vector<std::string> nvme = {"--nvme_path", folder.File(""), "--offload_ratio=0.5"};
  for (const std::string place : {"cpu", "nvme"}) {
    CAPTURE(place);
    std::vector<std::string> offload = flags;
    offload.push_back("--offload_optimizer=" + place);
    if (place == "nvme") offload.insert(offload.end(), nvme.begin(), nvme.end());
    if (stage == "--stage=3") offload.push_back("--offload_param=" + place);
    const std::string offloaded = folder.Metrics(offload, kStandin);
    CHECK(TextOf("loss", offloaded) == TextOf("loss", kept));
    CHECK(TextOf("grad_norm", offloaded) == TextOf("grad_norm", kept));
  }
}

TEST_CASE("zero-train --device cuda: a resumed run is the run that was not stopped",
          "[programs][checkpoint]") {
  const std::string stage = GENERATE("--stage=1", "--stage=3");
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  const std::vector<std::string> flags = {"--device=cuda", "--ranks=2", stage, "--accumulation=2"};
  const auto losses = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return TextOf("loss", folder.Metrics(all, kStandin));
  };
  const auto whole = losses({"--steps=5", "--checkpoint_dir", saved, "--save_every=3"});
  REQUIRE(whole.size() == 5);
  const auto resumed = losses({"--steps=5", "--resume", saved + "/step-00000003"});
  CHECK(resumed == std::vector<std::string>(whole.begin() + 3, whole.end()));
  // On the host, to rounding.
  const auto host = ReadMetrics(folder.Metrics(
      {"--ranks=2", stage, "--accumulation=2", "--resume", saved + "/step-00000003", "--steps=5"}));
  REQUIRE(host.size() == 2);
  CHECK(host.front().loss == Approx(std::stod(whole[3])).epsilon(2e-2));
}

// Checks that steps and scales of the two are the same, and losses and norms within the bounds.
void CheckAlike(const std::vector<MetricsRecord>& host, const std::vector<MetricsRecord>& cuda,
                double bound, double norm_bound) {
  REQUIRE(host.size() == cuda.size());
  for (size_t i = 0; i < host.size(); ++i) {
    CAPTURE(i, cuda[i].loss - host[i].loss);
    CHECK(cuda[i].loss == Approx(host[i].loss).epsilon(bound));
    CHECK(cuda[i].skipped == host[i].skipped);
    CHECK(cuda[i].loss_scale == host[i].loss_scale);
    if (!host[i].skipped) CHECK(cuda[i].grad_norm == Approx(host[i].grad_norm).epsilon(norm_bound));
  }
}

TEST_CASE("zero-train --device cuda: a dynamic scale skips the steps that the host skips",
          "[programs]") {
  const std::string stage = GENERATE("0", "3");
  CAPTURE(stage);
  const TrainingFolder folder;
  const std::string file = folder.File("ds.json");
  WriteFile(file, R"({"fp16": {"enabled": true, "initial_scale_power": 20, "hysteresis": 1}})");
  const std::vector<std::string> flags = {"--config", file, "--stage",         stage,
                                          "--steps",  "8",  "--micro_batch=8", "--ranks=2"};
  const auto host = ReadMetrics(folder.Metrics(flags));
  std::vector<std::string> on_cuda = flags;
  on_cuda.push_back("--device=cuda");
  const auto cuda = ReadMetrics(folder.Metrics(on_cuda, kStandin));
  REQUIRE(host.size() == 8);
  CheckAlike(host, cuda, 2e-3, 5e-3);
  CHECK(host[0].skipped);
  CHECK_FALSE(host[7].skipped);
  CHECK(cuda[7].next_loss_scale < 1 << 20);
  CHECK(cuda[7].loss < cuda[0].loss);
}

TEST_CASE("zero-train --device cuda: masters and optimizers are the host's to rounding",
          "[programs]") {
  const auto [flag, dtype, bound] =
      GENERATE(table<std::string, std::string, double>({{"--master=split", "bf16", 2e-2},
                                                        {"--master=none", "bf16", 2e-2},
                                                        {"--optimizer=lion", "bf16", 2e-2},
                                                        {"--optimizer=lion", "fp32", 1e-5},
                                                        {"--optimizer=adam", "fp32", 1e-5},
                                                        {"--optimizer=sgd", "fp32", 1e-5}}));
  CAPTURE(flag, dtype);
  const TrainingFolder folder;
  const std::vector<std::string> flags = {
      flag, "--dtype", dtype, "--weight_decay=0.1", "--learning_rate=3e-3", "--accumulation=2"};
  const auto host = ReadMetrics(folder.Metrics(flags));
  std::vector<std::string> on_cuda = flags;
  on_cuda.push_back("--device=cuda");
  const auto cuda = ReadMetrics(folder.Metrics(on_cuda, kStandin));
  REQUIRE(host.size() == 4);
  CheckAlike(host, cuda, bound, dtype == "fp32" ? 1e-4 : 2.5 * bound);
}

TEST_CASE("zero-train --device cuda: bytes are as planned", "[programs]") {
  const int stage = GENERATE(0, 3);
  const TrainingFolder folder;
  const auto records = ReadMetrics(
      folder.Metrics({"--device=cuda", "--steps=1", "--stage", std::to_string(stage)}, kStandin));
  REQUIRE(records.size() == 1);
  train::Options options;
  options.device = "cuda";
  options.sequence_length = 16;
  options.stage = stage;
  options.threads = 2;
  const auto model = llama::ParseConfig(SmallConfig(false), "small");
  REQUIRE(model.ok());
  const auto cost = train::PlanCost(options, *model);
  REQUIRE(cost.ok());
  for (int c = 0; c < kMemoryCategories; ++c) {
    const char* name = Name(static_cast<MemoryCategory>(c));
    CAPTURE(name);
    CHECK(records[0].current.at(name) == cost->memory[static_cast<size_t>(c)]);
    CHECK(records[0].peak.at(name) == cost->memory[static_cast<size_t>(c)]);
  }
}

TEST_CASE("zero-train --device cuda: ranks in threads share a GPU", "[programs]") {
  const TrainingFolder folder;
  const auto metrics = [&](const std::string& ranks, const std::string& micro_batch) {
    return ReadMetrics(
        folder.Metrics({"--device=cuda", "--dtype=fp32", "--ranks", ranks, "--micro_batch",
                        micro_batch, "--evaluate_every=4", "--evaluate_batches=1"},
                       kStandin));
  };
  const auto whole = metrics("1", "2"), split = metrics("2", "1");
  REQUIRE(whole.size() == 4);
  REQUIRE(split.size() == 4);
  CHECK(split[0].loss == Approx(whole[0].loss).epsilon(1e-6));
  CHECK(split[3].loss == Approx(whole[3].loss).epsilon(1e-4));
  CHECK(split[3].evaluation_loss.has_value());
}

TEST_CASE("zero-train --device cuda: says what the device and its products are", "[programs]") {
  const TrainingFolder folder;
  const Outcome outcome = folder.Train({"--device=cuda", "--steps=1"}, kStandin);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("machine     cuda 0, "));
  CHECK_THAT(outcome.out, ContainsSubstring("cuBLASLt 13."));
}

TEST_CASE("zero-sample --device cuda: continues a prompt as the host does", "[programs]") {
  const TrainingFolder folder;
  const std::string saved = folder.File("saved");
  const Outcome trained =
      folder.Train({"--device=cuda", "--dtype=fp32", "--steps=2", "--output", saved}, kStandin);
  INFO(trained.out << trained.err);
  REQUIRE(trained.status == 0);
  const std::vector<std::string> flags = {"--model",  saved,   "--tokens",       "6",
                                          "--prompt", "a ran", "--temperature=0"};
  std::vector<std::string> on_cuda = flags;
  on_cuda.push_back("--device=cuda");
  const Outcome host = RunProgram("zero-sample", flags);
  const Outcome cuda = RunProgram("zero-sample-standin", on_cuda);
  INFO(cuda.err);
  CHECK(cuda.status == 0);
  CHECK(cuda.out == host.out);
  CHECK(host.out.size() == 5 + 6 + 1);
}

TEST_CASE("zero-train --device cuda: a GPU that is not there is one line and exit status 1",
          "[programs][errors]") {
  const TrainingFolder folder;
  const auto before = folder.Names();
  const Outcome outcome =
      folder.Train({"--device=cuda", "--cuda_device=7", "--output", folder.File("made"),
                    "--metrics", folder.File("metrics.jsonl")},
                   kStandin);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 1);
  CHECK_THAT(outcome.err, ContainsSubstring("--device cuda: "));
  CHECK_THAT(outcome.err, ContainsSubstring("7"));
  CHECK(folder.Names() == before);
}

}  // namespace
}  // namespace zero::programs
