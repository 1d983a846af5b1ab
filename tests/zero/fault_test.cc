// "Any failure at any point: exactly one of succeeded; unchanged and usable; unchanged and group
// dead; poisoned": the n-th call, operation or collective of a step fails, for every n until the
// step succeeds.
#include "tests/zero/faults.h"

#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/device_toy.h"
#include "tests/zero/toy_trainer.h"
#include "zero/initializer.h"
#include "zero/sharded_optimizer.h"

namespace zero::test {
namespace {

using States = std::map<std::string, std::vector<float>>;

// What is left of a rank after a failure.
enum class End { kSucceeded, kUsable, kDead, kPoisoned, kChangedAndUsable };

const char* Name(End end) {
  switch (end) {
    case End::kSucceeded:
      return "succeeded";
    case End::kUsable:
      return "unchanged and usable";
    case End::kDead:
      return "unchanged and group dead";
    case End::kPoisoned:
      return "poisoned";
    case End::kChangedAndUsable:
      return "CHANGED AND USABLE";
  }
  return "unknown";
}

Model SmallModel() {
  Model model = MakeModel("mixed", DType::kBF16);
  model.units.resize(2);
  return model;
}

// One rank with a trainer that uses the library's own kernels.
class Rank {
 public:
  static absl::StatusOr<std::unique_ptr<Rank>> Create(const Config& config, ProcessGroup* group,
                                                      Device* device) {
    auto rank = std::make_unique<Rank>();
    rank->group_ = group;
    ZERO_ASSIGN_OR_RETURN(rank->stream_, device->CreateStream("trainer"));
    ZERO_ASSIGN_OR_RETURN(rank->toy_, DeviceToy::Create(device, SmallModel()));
    ZERO_ASSIGN_OR_RETURN(rank->optimizer_,
                          ShardedOptimizer::Create(config, SmallModel(), device, group));
    ZERO_RETURN_IF_ERROR(rank->optimizer_->Write(State::kMaster, InitialValues()));
    return rank;
  }
  ~Rank() {
    // The optimizer first: it waits for uses of its memory on the trainer's stream.
    optimizer_.reset();
    if (stream_ != nullptr) (void)stream_->Synchronize();
  }

  absl::Status Step(int step) {
    for (const Pass pass : {Pass::kTrain, Pass::kTrainLast}) {
      ZERO_RETURN_IF_ERROR(optimizer_->BeginPass(pass));
      const int units = static_cast<int>(optimizer_->model().units.size());
      for (int u = 0; u < units; ++u) ZERO_RETURN_IF_ERROR(Use(u, step, /*backward=*/false));
      for (int u = units - 1; u >= 0; --u) {
        ZERO_RETURN_IF_ERROR(Use(u, step + (pass == Pass::kTrain ? 0 : 100), /*backward=*/true));
      }
    }
    ZERO_ASSIGN_OR_RETURN(Pending<StepResult> pending, optimizer_->Step());
    ZERO_ASSIGN_OR_RETURN(const StepResult result, pending.Get());
    if (!result.applied) return absl::InternalError("the step was skipped");
    return optimizer_->Finish();
  }

  absl::StatusOr<States> Read() {
    States states;
    for (const State state : {State::kWeight, State::kMaster, State::kMoment1, State::kMoment2}) {
      ZERO_RETURN_IF_ERROR(optimizer_->Read(state, [&](const Parameter& parameter, int64_t,
                                                       absl::Span<const float> values) {
        std::vector<float>& all = states[absl::StrCat(zero::Name(state), " of ", parameter.name)];
        all.insert(all.end(), values.begin(), values.end());
        return absl::OkStatus();
      }));
    }
    return states;
  }

 private:
  absl::Status Use(int unit, int seed, bool backward) {
    ZERO_ASSIGN_OR_RETURN(const Weights weights, optimizer_->AcquireWeights(unit, *stream_));
    const Unit& description = optimizer_->model().units[unit];
    Gradients gradients;
    if (backward) {
      ZERO_ASSIGN_OR_RETURN(gradients, optimizer_->AcquireGradients(unit, *stream_));
    }
    for (size_t p = 0; p < description.parameters.size(); ++p) {
      const Parameter& parameter = description.parameters[p];
      if (!backward || !parameter.trainable) continue;
      std::vector<float> values(static_cast<size_t>(ElementCount(parameter)));
      FillNormal(17, absl::StrCat(parameter.name, "/", group_->rank(), "/", seed), 0, 1.0f,
                 absl::MakeSpan(values));
      ZERO_RETURN_IF_ERROR(toy_->Backward(*stream_, parameter, weights.data[p], 0.5f,
                                          std::move(values), gradients.data[p],
                                          gradients.accumulate));
    }
    if (backward) ZERO_RETURN_IF_ERROR(optimizer_->ReduceGradients(unit, *stream_));
    return optimizer_->ReleaseWeights(unit, *stream_);
  }

  ProcessGroup* group_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceToy> toy_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
};

// The states of each rank before the second step and after it, without a failure.
struct Reference {
  std::vector<States> before, after;
};

Config MakeConfig(int stage) {
  Config config;
  config.stage = stage;
  config.groups = {{}, {}};
  config.clip_norm = 0.5;
  config.reduce_bucket_size = 1;
  config.poison_slots = true;
  return config;
}

absl::StatusOr<Reference> RunReference(const Config& config, int ranks) {
  Reference reference;
  reference.before.resize(ranks);
  reference.after.resize(ranks);
  LocalWorld world(ranks, absl::Seconds(20));
  ZERO_RETURN_IF_ERROR(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(const auto rank, Rank::Create(config, group, &device));
    ZERO_RETURN_IF_ERROR(rank->Step(0));
    ZERO_ASSIGN_OR_RETURN(reference.before[group->rank()], rank->Read());
    ZERO_RETURN_IF_ERROR(rank->Step(1));
    ZERO_ASSIGN_OR_RETURN(reference.after[group->rank()], rank->Read());
    return absl::OkStatus();
  }));
  return reference;
}

struct Trial {
  bool fired = false;
  std::string what;
  std::vector<End> ends;               // of each rank
  std::vector<absl::Status> statuses;  // likewise, of the step
};

// What a rank's step came to, and what its optimizer says and holds afterwards.
End Classify(Rank& rank, const absl::Status& stepped, const States& before, const States& after) {
  const absl::StatusOr<States> states = rank.Read();
  if (absl::IsDataLoss(states.status()))
    return stepped.ok() ? End::kChangedAndUsable : End::kPoisoned;
  if (!states.ok()) return End::kChangedAndUsable;  // neither whole nor said to be lost
  if (*states == after) return End::kSucceeded;
  if (*states != before || stepped.ok()) return End::kChangedAndUsable;
  return absl::IsFailedPrecondition(stepped) ? End::kUsable : End::kDead;
}

Trial RunTrial(const Config& config, int ranks, const Reference& reference, FaultKind kind,
               int64_t n) {
  Trial trial;
  trial.ends.resize(ranks);
  trial.statuses.resize(ranks);
  FaultCounter counter;
  FaultCounter idle;
  const int faulty = ranks - 1;
  LocalWorld world(ranks, absl::Seconds(20));
  std::mutex mutex;
  const absl::Status run = RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    const int r = group->rank();
    FaultCounter* const mine = r == faulty ? &counter : &idle;
    FaultyDevice device(mine);
    FaultyGroup faulty_group(group, mine);
    ZERO_ASSIGN_OR_RETURN(const auto rank, Rank::Create(config, &faulty_group, &device));
    ZERO_RETURN_IF_ERROR(rank->Step(0));
    mine->Arm(kind, r == faulty ? n : INT64_MAX);
    const absl::Status stepped = rank->Step(1);
    mine->Disarm();
    // As RunRanks does when a rank returns an error; the failed call may be the trainer's own.
    if (!stepped.ok()) group->Abort(stepped);
    const End end = Classify(*rank, stepped, reference.before[r], reference.after[r]);
    std::lock_guard<std::mutex> lock(mutex);
    trial.ends[r] = end;
    trial.statuses[r] = stepped;
    return absl::OkStatus();
  });
  if (!run.ok()) trial.statuses[faulty] = run;
  trial.fired = counter.fired();
  trial.what = counter.what();
  return trial;
}

// Every n until the step succeeds; how often each end was met.
std::map<End, int> FailEverywhere(int stage, int ranks, FaultKind kind) {
  const Config config = MakeConfig(stage);
  const absl::StatusOr<Reference> reference = RunReference(config, ranks);
  REQUIRE_OK(reference.status());
  std::map<End, int> met;
  for (int64_t n = 0;; ++n) {
    const Trial trial = RunTrial(config, ranks, *reference, kind, n);
    for (int r = 0; r < ranks; ++r) {
      INFO("stage " << stage << ", call " << n << ", " << trial.what << ", rank " << r << ": "
                    << Name(trial.ends[r]) << ", " << trial.statuses[r].ToString());
      CHECK(trial.ends[r] != End::kChangedAndUsable);
      if (!trial.fired) CHECK_OK(trial.statuses[r]);
      if (!trial.fired) CHECK(trial.ends[r] == End::kSucceeded);
      ++met[trial.ends[r]];
    }
    if (!trial.fired || n > 2000) return met;
  }
}

}  // namespace

TEST_CASE("Faults: whatever call of a step fails leaves it done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const int ranks : {1, 2}) {
    std::map<End, int> met = FailEverywhere(stage, ranks, FaultKind::kCall);
    INFO("stage " << stage << ", ranks " << ranks);
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

TEST_CASE("Faults: whatever operation of a step fails leaves it done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const int ranks : {1, 2}) {
    std::map<End, int> met = FailEverywhere(stage, ranks, FaultKind::kOperation);
    INFO("stage " << stage << ", ranks " << ranks);
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kPoisoned] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

TEST_CASE("Faults: whatever collective of a step fails leaves it done or undone or poisoned",
          "[zero][faults]") {
  for (int stage = 0; stage < 4; ++stage) {
    std::map<End, int> met = FailEverywhere(stage, 2, FaultKind::kCollective);
    INFO("stage " << stage);
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

TEST_CASE("Faults: Create that fails anywhere leaves nothing and may be called again",
          "[zero][faults]") {
  for (int stage = 0; stage < 4; ++stage) {
    const Config config = MakeConfig(stage);
    const absl::StatusOr<Reference> reference = RunReference(config, 1);
    REQUIRE_OK(reference.status());
    int failures = 0;
    for (int64_t n = 0;; ++n) {
      FaultCounter counter;
      FaultyDevice device(&counter);
      LocalWorld world(1, absl::Seconds(20));
      counter.Arm(FaultKind::kCall, n);
      const absl::StatusOr<std::unique_ptr<ShardedOptimizer>> optimizer =
          ShardedOptimizer::Create(config, SmallModel(), &device, world.group(0));
      counter.Disarm();
      if (!counter.fired()) break;
      INFO("stage " << stage << ", call " << n << ", " << counter.what());
      ++failures;
      REQUIRE_FALSE(optimizer.ok());
      for (const MemoryUse& use : device.memory()) CHECK(use.current == 0);
      // The group too is as it was.
      const absl::StatusOr<std::unique_ptr<Rank>> rank =
          Rank::Create(config, world.group(0), &device);
      REQUIRE_OK(rank.status());
      CHECK_OK((*rank)->Step(0));
      const absl::StatusOr<States> states = (*rank)->Read();
      REQUIRE_OK(states.status());
      CHECK(*states == reference->before[0]);
    }
    CHECK(failures > 10);
  }
}

}  // namespace zero::test
