#include "bench/offload_link.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "collectives/local_group.h"
#include "device/status.h"

namespace zero::bench {
namespace {

constexpr double kShares[] = {0.5, 1, 1.5, 2};
constexpr double kForward = 1.0 / 3;
constexpr int kWarmUps = 3;

// One step without compute.
absl::Status HostStep(StageRank& rank, Samples& out, Samples& back) {
  const double start = Now();
  ZERO_ASSIGN_OR_RETURN(Pending<StepResult> result, rank.EnqueueStep({}));
  ZERO_ASSIGN_OR_RETURN(const StepResult decided, result.Get());
  if (!decided.applied) return absl::InternalError("a step was skipped");
  const double between = Now();
  ZERO_RETURN_IF_ERROR(rank.Finish());
  out.Add(between - start);
  back.Add(Now() - between);
  return absl::OkStatus();
}

// Seconds from one step's decision to the next one's: what comes before the first and after the
// last overlaps with nothing.
absl::StatusOr<double> SteadyStep(StageRank& rank, const StageRank::Compute& compute,
                                  int64_t steps) {
  ZERO_ASSIGN_OR_RETURN(Pending<StepResult> last, rank.EnqueueStep(compute));
  double start = 0;
  for (int64_t s = 0; s < steps; ++s) {
    ZERO_ASSIGN_OR_RETURN(Pending<StepResult> next, rank.EnqueueStep(compute));
    ZERO_RETURN_IF_ERROR(last.Get().status());
    if (s == 0) start = Now();
    last = std::move(next);
  }
  ZERO_RETURN_IF_ERROR(last.Get().status());
  const double seconds = Now() - start;
  ZERO_RETURN_IF_ERROR(rank.Finish());
  return seconds / static_cast<double>(steps);
}

absl::Status BothSteps(StageRank& rank, const StageRank::Compute& compute, int64_t steps,
                       bool updates_after, double out, double back, LinkRow& row) {
  const double begin = Now();
  ZERO_RETURN_IF_ERROR(rank.ComputeOnly(compute));
  const double computed = Now() - begin;
  ZERO_ASSIGN_OR_RETURN(const double step, SteadyStep(rank, compute, steps));
  row.compute.Add(computed);
  row.step.Add(step);
  const double larger = std::max(computed, out + back);
  row.to_larger.Add(step / larger);
  row.overlap.Add(1 - (step - computed) / (out + back));
  const double bound =
      std::max((1 - kForward) * computed, out) + std::max(kForward * computed, back);
  row.to_bound.Add(step / (updates_after ? bound : larger));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LinkTimes> MeasureLinkSteps(const StageModel& model, const LinkRun& run) {
  ThreadPool pool(static_cast<int>(run.threads));
  HostDevice::Options options;
  options.pool = &pool;
  options.link = {run.bytes_per_second, run.bytes_per_second};
  Config config = StageRank::ConfigOf(model, 2);
  config.accumulation = run.gradients;
  config.check_overflow = run.check_overflow;
  config.offload.optimizer = Place::kHost;
  config.offload.piece_elements = run.piece_elements;
  config.offload.buffer_count = run.buffer_count;
  LocalWorld world(1);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<StageRank> rank,
                        StageRank::Create(model, config, options, world.group(0)));
  Samples out;
  Samples back;
  for (int i = 0; i < kWarmUps; ++i) ZERO_RETURN_IF_ERROR(HostStep(*rank, out, back));
  const double host = out.median() + back.median();
  LinkTimes times;
  for (const double share : kShares) times.rows.push_back({share, {}, {}, {}, {}, {}});
  for (int64_t repeat = 0; repeat < run.repeats; ++repeat) {
    for (LinkRow& row : times.rows) {
      Samples own_out;
      Samples own_back;
      ZERO_RETURN_IF_ERROR(HostStep(*rank, own_out, own_back));
      times.out.Add(own_out.min());
      times.back.Add(own_back.min());
      const double unit = row.share * host / static_cast<double>(model.units);
      const StageRank::Compute compute = {kForward * unit, (1 - kForward) * unit};
      ZERO_RETURN_IF_ERROR(BothSteps(*rank, compute, run.steps, run.check_overflow, own_out.min(),
                                     own_back.min(), row));
    }
  }
  return times;
}

}  // namespace zero::bench
