#include "tests/zero/fault_loop.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/toy_trainer.h"
#include "zero/initializer.h"

namespace zero::test {

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

Model FaultModel() {
  Model model = MakeModel("mixed", DType::kBF16);
  model.units.resize(2);
  return model;
}

absl::StatusOr<std::unique_ptr<FaultRank>> FaultRank::Create(const Config& config,
                                                             ProcessGroup* group, Device* device) {
  auto rank = std::make_unique<FaultRank>();
  rank->group_ = group;
  ZERO_ASSIGN_OR_RETURN(rank->stream_, device->CreateStream("trainer"));
  ZERO_ASSIGN_OR_RETURN(rank->toy_, DeviceToy::Create(device, FaultModel()));
  ZERO_ASSIGN_OR_RETURN(rank->optimizer_,
                        ShardedOptimizer::Create(config, FaultModel(), device, group));
  ZERO_RETURN_IF_ERROR(rank->optimizer_->Write(State::kMaster, InitialValues()));
  return rank;
}

FaultRank::~FaultRank() {
  // The optimizer first: it waits for uses of its memory on the trainer's stream.
  optimizer_.reset();
  if (stream_ != nullptr) (void)stream_->Synchronize();
}

absl::Status FaultRank::Step(int step) {
  ZERO_RETURN_IF_ERROR(StepToResult(step));
  return optimizer_->Finish();
}

absl::Status FaultRank::StepToResult(int step) {
  for (const Pass pass : {Pass::kTrain, Pass::kTrainLast}) {
    ZERO_RETURN_IF_ERROR(optimizer_->BeginPass(pass));
    const int units = static_cast<int>(optimizer_->model().units.size());
    for (int u = 0; u < units; ++u) ZERO_RETURN_IF_ERROR(Use(u, step, /*backward=*/false));
    for (int u = units - 1; u >= 0; --u) {
      ZERO_RETURN_IF_ERROR(Use(u, step + (pass == Pass::kTrain ? 0 : 100), /*backward=*/true));
    }
  }
  ZERO_ASSIGN_OR_RETURN(Pending<StepResult> pending, optimizer_->Step());
  stepped();
  harmless_ = true;
  ZERO_ASSIGN_OR_RETURN(const StepResult result, pending.Get());
  if (!result.applied) return absl::InternalError("the step was skipped");
  return absl::OkStatus();
}

absl::StatusOr<States> FaultRank::Read() {
  States states;
  for (const State state : {State::kWeight, State::kMaster, State::kMoment1, State::kMoment2}) {
    ZERO_RETURN_IF_ERROR(optimizer_->Read(
        state, [&](const Parameter& parameter, int64_t, absl::Span<const float> values) {
          std::vector<float>& all = states[absl::StrCat(zero::Name(state), " of ", parameter.name)];
          all.insert(all.end(), values.begin(), values.end());
          return absl::OkStatus();
        }));
  }
  return states;
}

absl::Status FaultRank::Use(int unit, int seed, bool backward) {
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
    const absl::Status enqueued =
        toy_->Backward(*stream_, parameter, weights.data[p], 0.5f, std::move(values),
                       gradients.data[p], gradients.accumulate);
    harmless_ = !enqueued.ok();
    ZERO_RETURN_IF_ERROR(enqueued);
  }
  if (backward) ZERO_RETURN_IF_ERROR(optimizer_->ReduceGradients(unit, *stream_));
  return optimizer_->ReleaseWeights(unit, *stream_);
}

Config FaultConfig(int stage) {
  Config config;
  config.stage = stage;
  config.groups = {{}, {}};
  config.clip_norm = 0.5;
  config.reduce_bucket_size = 1;
  config.poison_slots = true;
  return config;
}

absl::StatusOr<FaultReference> RunReference(const Config& config, int ranks) {
  FaultReference reference;
  reference.before.resize(ranks);
  reference.after.resize(ranks);
  LocalWorld world(ranks, absl::Seconds(20));
  ZERO_RETURN_IF_ERROR(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(const auto rank, FaultRank::Create(config, group, &device));
    ZERO_RETURN_IF_ERROR(rank->Step(0));
    ZERO_ASSIGN_OR_RETURN(reference.before[group->rank()], rank->Read());
    ZERO_RETURN_IF_ERROR(rank->Step(1));
    ZERO_ASSIGN_OR_RETURN(reference.after[group->rank()], rank->Read());
    return absl::OkStatus();
  }));
  return reference;
}

namespace {

struct Trial {
  bool fired = false;
  std::string what;
  std::vector<End> ends;               // of each rank
  std::vector<absl::Status> statuses;  // likewise, of the step
  std::vector<absl::Status> reads;     // and of Read after it
};

// What a rank's step came to, and what its optimizer says and holds afterwards.
End Classify(const absl::StatusOr<States>& states, bool lost, const absl::Status& stepped,
             const States& before, const States& after) {
  // The device went after the step had ended well.
  if (!states.ok() && lost && stepped.ok()) return End::kSucceeded;
  if (absl::IsDataLoss(states.status())) {
    return stepped.ok() ? End::kChangedAndUsable : End::kPoisoned;
  }
  // Neither whole nor said to be lost, unless its device is.
  if (!states.ok()) return lost ? End::kDead : End::kChangedAndUsable;
  if (*states == after) return End::kSucceeded;
  if (*states != before || stepped.ok()) return End::kChangedAndUsable;
  return absl::IsFailedPrecondition(stepped) ? End::kUsable : End::kDead;
}

Trial RunTrial(const Config& config, int ranks, const FaultReference& reference,
               const FaultBackend& backend, int64_t n) {
  Trial trial;
  trial.ends.resize(ranks);
  trial.statuses.resize(ranks);
  trial.reads.resize(ranks);
  std::mutex mutex;
  const absl::Status run =
      backend.run_ranks(ranks, [&](ProcessGroup* group, Device* device) -> absl::Status {
        const int r = group->rank();
        ZERO_ASSIGN_OR_RETURN(const auto rank, FaultRank::Create(config, group, device));
        ZERO_RETURN_IF_ERROR(rank->Step(0));
        backend.arm(r, n);
        const absl::Status stepped = rank->Step(1);
        backend.disarm(r);
        // The optimizer knows by itself that it has failed, and so does its group.
        const bool noticed =
            stepped.ok() || rank->harmless() || (!rank->StepAgain().ok() && !group->Health().ok());
        // As RunRanks does when a rank returns an error; the failed call may be the trainer's own.
        if (!stepped.ok()) group->Abort(stepped);
        absl::StatusOr<States> states = rank->Read();
        // The failure may have met the Read: it changes nothing, and can be asked again.
        if (!states.ok() && !absl::IsDataLoss(states.status())) states = rank->Read();
        End end = Classify(states, backend.lost(device), stepped, reference.before[r],
                           reference.after[r]);
        if (!noticed) end = End::kChangedAndUsable;
        std::lock_guard<std::mutex> lock(mutex);
        trial.ends[r] = end;
        trial.statuses[r] = stepped;
        trial.reads[r] = states.status();
        return absl::OkStatus();
      });
  if (!run.ok()) trial.statuses[ranks - 1] = run;
  trial.fired = backend.fired();
  trial.what = backend.what();
  return trial;
}

}  // namespace

std::map<End, int> FailEverywhere(const Config& config, int ranks,
                                  const std::function<FaultBackend()>& make, int64_t most) {
  const absl::StatusOr<FaultReference> reference = RunReference(config, ranks);
  REQUIRE_OK(reference.status());
  std::map<End, int> met;
  for (int64_t n = 0;; ++n) {
    if (n == most) return met;
    const Trial trial = RunTrial(config, ranks, *reference, make(), n);
    for (int r = 0; r < ranks; ++r) {
      INFO("stage " << config.stage << ", call " << n << ", " << trial.what << ", rank " << r
                    << ": " << Name(trial.ends[r]) << ", " << trial.statuses[r].ToString()
                    << ", read " << trial.reads[r].ToString());
      CHECK(trial.ends[r] != End::kChangedAndUsable);
      if (!trial.fired) CHECK_OK(trial.statuses[r]);
      if (!trial.fired) CHECK(trial.ends[r] == End::kSucceeded);
      ++met[trial.ends[r]];
    }
    if (!trial.fired) return met;
  }
}

}  // namespace zero::test
