// Timing changes nothing: delays in any stream, evaluations in between, other SIMD targets.
#include <chrono>
#include <thread>

#include "kernels/simd_targets.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

ToyRun BaseRun(int stage, const std::string& model) {
  ToyRun run;
  run.model = MakeModel(model, DType::kBF16);
  run.ranks = 3;
  run.micro_batches = 2;
  run.config.stage = stage;
  run.config.groups = {{1, 0.1}, {0.5, 0}};
  run.config.clip_norm = 1;
  run.config.poison_slots = true;
  run.config.reduce_bucket_size = 3000;
  return run;
}

}  // namespace

TEST_CASE("Order: a delay in any one stream changes no bit", "[zero][order]") {
  const std::string model = GENERATE("odd", "mixed");
  for (int stage = 0; stage < 4; ++stage) {
    ToyRun run = BaseRun(stage, model);
    const Outcome undisturbed = RunToy(run);
    REQUIRE_OK(undisturbed.status);
    for (const char* stream : {"comm-0", "comm-1", "math-0", "math-2", "toy-0", "toy-2"}) {
      run.hook = [&](const std::string& name, const char*) {
        if (name == stream) std::this_thread::sleep_for(std::chrono::microseconds(150));
        return absl::OkStatus();
      };
      const Outcome delayed = RunToy(run);
      INFO("stage " << stage << ", " << model << ", " << stream);
      REQUIRE_OK(delayed.status);
      CHECK(FirstDifference(undisturbed, delayed) == "");
    }
  }
}

TEST_CASE("Order: a delay in any one stream of what is offloaded changes no bit", "[zero][order]") {
  const bool disk = GENERATE(false, true);
  const bool during_backward = GENERATE(false, true);
  for (int stage = 1; stage < 4; ++stage) {
    ToyRun run = BaseRun(stage, "large");
    run.evaluate_between = true;
    if (during_backward) {
      run.config.clip_norm = 0;
      run.config.check_overflow = false;
    }
    const Outcome undisturbed = RunToy(run);
    REQUIRE_OK(undisturbed.status);
    const TemporaryFolder folder;
    Offload& offload = run.config.offload;
    offload.optimizer = disk ? Place::kNvme : Place::kHost;
    if (stage == 3) offload.parameters = offload.optimizer;
    offload.ratio = 0.7;
    offload.nvme_path = folder.path();
    offload.piece_elements = 2048;
    offload.buffer_count = 3;
    for (const char* stream : {"comm-0", "math-0", "toy-0", "copy-out-0", "copy-in-0",
                               "optimizer-0", "disk-read-0", "disk-write-0", "disk-weights-0"}) {
      run.hook = [&](const std::string& name, const char*) {
        if (name == stream) std::this_thread::sleep_for(std::chrono::microseconds(150));
        return absl::OkStatus();
      };
      const Outcome delayed = RunToy(run);
      INFO("stage " << stage << ", " << stream);
      REQUIRE_OK(delayed.status);
      CHECK(FirstDifference(undisturbed, delayed) == "");
    }
  }
}

TEST_CASE("Order: evaluation passes between micro-batches and steps change no bit",
          "[zero][order]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const std::string& model : ModelNames()) {
      ToyRun run = BaseRun(stage, model);
      const Outcome without = RunToy(run);
      run.evaluate_between = true;
      run.evaluate_within = 2;
      const Outcome with = RunToy(run);
      INFO("stage " << stage << ", " << model);
      REQUIRE_OK(without.status);
      REQUIRE_OK(with.status);
      CHECK(FirstDifference(without, with) == "");
    }
  }
}

TEST_CASE("Order: SIMD down to SSE4 gives the same bits", "[zero][order]") {
  ToyRun run = BaseRun(3, "large");
  const Outcome best = RunToy(run);
  REQUIRE_OK(LimitSimdTargets("sse4"));
  const Outcome sse4 = RunToy(run);
  REQUIRE_OK(LimitSimdTargets("best"));
  REQUIRE_OK(best.status);
  REQUIRE_OK(sse4.status);
  CHECK(FirstDifference(best, sse4) == "");
}

TEST_CASE("Order: initial values do not depend on stage or ranks", "[zero][order]") {
  ToyRun run = BaseRun(0, "odd");
  run.steps = 0;
  const Outcome first = RunToy(run);
  REQUIRE_OK(first.status);
  for (int stage = 0; stage < 4; ++stage) {
    for (const int ranks : {1, 2, 8}) {
      run.config.stage = stage;
      run.ranks = ranks;
      const Outcome other = RunToy(run);
      REQUIRE_OK(other.status);
      CHECK(FirstDifference(first, other) == "");
    }
  }
}

}  // namespace zero::test
