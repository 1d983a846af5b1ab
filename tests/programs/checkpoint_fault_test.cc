// Runs whose checkpoints cannot be written.
#include <errno.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "examples/train/run.h"
#include "tests/catch.h"
#include "tests/io/gated_files.h"
#include "tests/programs/training_text.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::programs {
namespace {

// The disk is full at some of the times that a checkpoint's folder is made.
class FullAt : public GatedFiles {
 public:
  explicit FullAt(std::vector<std::string> steps)
      : GatedFiles([this](const FileCall& call) { return Next(call); }), steps_(std::move(steps)) {}

 private:
  int Next(const FileCall& call) {
    if (call.kind == "mkdir") {
      for (const std::string& step : steps_) {
        if (absl::StrContains(call.path, step)) full_ = true;
      }
    }
    if (call.kind == "rmdir") full_ = false;  // what was begun is gone
    return call.kind == "write" && full_ ? ENOSPC : kGoes;
  }

  const std::vector<std::string> steps_;
  std::atomic<bool> full_{false};
};

struct Result {
  absl::Status status;
  train::RunEnd end;
  std::vector<std::string> said;
  int reports = 0;
};

Result RunSaving(const std::string& saved, int64_t checkpoint_memory, int ranks) {
  const TrainingFolder folder;
  Result result;
  train::Job job;
  job.options.ranks = ranks;
  job.options.steps = 6;
  job.options.sequence_length = 16;
  job.options.threads = 2;
  job.options.checkpoint_dir = saved;
  job.options.save_every = 2;
  job.options.checkpoint_memory = checkpoint_memory;
  const auto model = llama::ReadConfig(folder.model());
  const auto data = llama::TokenDataset::Open(folder.data(), {.sequence_length = 16});
  REQUIRE_OK(model.status());
  REQUIRE_OK(data.status());
  ThreadPool pool(2);
  job.model = *model;
  job.data = &*data;
  job.pool = &pool;
  job.end = &result.end;
  job.checkpoints.say = [&](const std::string& line) { result.said.push_back(line); };
  job.report = [&](const train::StepReport&) {
    ++result.reports;
    return absl::OkStatus();
  };
  result.status = train::RunJob(job);
  return result;
}

TEST_CASE("RunJob: a checkpoint that cannot be written is told of, and the run goes on",
          "[programs][checkpoint][thread]") {
  const int64_t memory = GENERATE(0, 1 << 20);
  const int ranks = GENERATE(1, 3);
  const TemporaryFolder folder;
  const std::string saved = folder.File("saved");
  const FullAt full({".step-00000002", ".step-00000004"});
  const Result result = RunSaving(saved, memory, ranks);
  CHECK_OK(result.status);
  CHECK(result.reports == 6);
  REQUIRE(result.said.size() == 3);
  for (const size_t i : {0, 1}) {
    CHECK_THAT(result.said[i],
               ContainsSubstring(absl::StrCat("of step ", 2 * i + 2, " is not saved: ")) &&
                   ContainsSubstring("No space left on device"));
  }
  CHECK_THAT(result.said[2], ContainsSubstring("step-00000006: "));
  CHECK_OK(result.end.saved);
  const auto found = FindCheckpoints(saved);
  REQUIRE_OK(found.status());
  REQUIRE(found->size() == 1);
  CHECK(found->front().step == 6);
}

TEST_CASE("RunJob: the last checkpoint that cannot be written is the run's own error",
          "[programs][checkpoint][thread]") {
  const int64_t memory = GENERATE(0, 1 << 20);
  const TemporaryFolder folder;
  const std::string saved = folder.File("saved");
  const FullAt full({".step-00000006"});
  const Result result = RunSaving(saved, memory, 2);
  CHECK_OK(result.status);
  CHECK(result.reports == 6);
  CHECK(absl::IsResourceExhausted(result.end.saved));
  const auto latest = LatestCheckpoint(saved);
  REQUIRE_OK(latest.status());
  CHECK(latest->step == 4);
}

}  // namespace
}  // namespace zero::programs
