#include <chrono>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "examples/train/run.h"
#include "tests/catch.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

// Three ranks on a small model; `change` may plant a fault. Deadline: 300 s, far above the limit.
absl::Status RunSmall(const std::function<void(train::Job&)>& change, int stage) {
  const TrainingFolder folder;
  train::Job job;
  job.options.ranks = 3;
  job.options.stage = stage;
  job.options.steps = 3;
  job.options.sequence_length = 16;
  job.options.threads = 2;
  job.options.deadline = 300;
  const auto model = llama::ReadConfig(folder.model());
  const auto data = llama::TokenDataset::Open(folder.data(), {16, llama::SampleOrder::kFile, 0});
  if (!model.ok()) return model.status();
  if (!data.ok()) return data.status();
  ThreadPool pool(2);
  job.model = *model;
  job.data = &*data;
  job.pool = &pool;
  change(job);
  return train::RunJob(job);
}

TEST_CASE("RunJob: three ranks train in every stage", "[programs][thread]") {
  int reports = 0;
  const auto count = [&](train::Job& job) {
    job.options.evaluate_every = 2;
    job.evaluation_data = job.data;
    job.report = [&](const train::StepReport&) {
      ++reports;
      return absl::OkStatus();
    };
  };
  for (int stage = 0; stage < 4; ++stage) CHECK_OK(RunSmall(count, stage));
  CHECK(reports == 4 * 3);
}

TEST_CASE("RunJob: a rank that returns an error ends all ranks with it", "[programs][thread]") {
  const int stage = GENERATE(0, 3);
  const int bad_rank = GENERATE(0, 2);
  const int64_t bad_step = GENERATE(1, 3);
  CAPTURE(stage, bad_rank, bad_step);
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = RunSmall(
      [&](train::Job& job) {
        job.before_step = [=](int rank, int64_t step) {
          return rank == bad_rank && step == bad_step ? absl::DataLossError("planted")
                                                      : absl::OkStatus();
        };
      },
      stage);
  CHECK(status == absl::DataLossError("rank " + std::to_string(bad_rank) + ": planted"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("RunJob: a rank that throws ends all ranks with what it threw", "[programs][thread]") {
  const absl::Status status = RunSmall(
      [](train::Job& job) {
        job.before_step = [](int rank, int64_t step) {
          if (rank == 1 && step == 2) throw std::runtime_error("planted");
          return absl::OkStatus();
        };
      },
      3);
  CHECK(status == absl::InternalError("rank 1: threw: planted"));
}

TEST_CASE("RunJob: an error while the model is saved ends all ranks with it",
          "[programs][thread]") {
  const absl::Status status = RunSmall(
      [](train::Job& job) {
        job.finish = [](ShardedOptimizer& optimizer, int rank) -> absl::Status {
          if (rank == 0) return absl::ResourceExhaustedError("planted");
          std::vector<float> whole(256 * 24);
          return optimizer.Gather(State::kWeight, "lm_head.weight", absl::MakeSpan(whole));
        };
      },
      3);
  CHECK(status == absl::ResourceExhaustedError("rank 0: planted"));
}

TEST_CASE("RunJob: a rank that stays silent is an error at the deadline", "[programs][thread]") {
  const absl::Status status = RunSmall(
      [](train::Job& job) {
        job.options.deadline = 2;
        job.before_step = [](int rank, int64_t step) {
          if (rank == 1 && step == 2) std::this_thread::sleep_for(std::chrono::seconds(4));
          return absl::OkStatus();
        };
      },
      2);
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("for rank 1"));
}

TEST_CASE("zero-train: metrics that can no longer be written end a run that saves nothing else",
          "[programs]") {
  const TrainingFolder folder;
  const auto before = folder.Names();
  Outcome outcome = folder.Train({"--ranks=3", "--metrics", "/dev/full"});
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 1);
  CHECK_THAT(outcome.err, ContainsSubstring("--metrics") && ContainsSubstring("/dev/full"));
  CHECK(folder.Names() == before);
  // Hours of training are worth more than their metrics.
  outcome = folder.Train({"--ranks=3", "--metrics", "/dev/full", "--output", folder.File("out")});
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 1);
  CHECK_THAT(outcome.err, ContainsSubstring("--metrics") && ContainsSubstring("/dev/full"));
  CHECK_THAT(outcome.out,
             ContainsSubstring("metrics     end here") && ContainsSubstring("the run goes on"));
  CHECK(std::filesystem::exists(folder.File("out/model.safetensors")));
}

}  // namespace
}  // namespace zero::programs
