// The loops over all failures of a step, on any back end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "tests/zero/device_toy.h"
#include "zero/sharded_optimizer.h"

namespace zero::test {

// What is left of a rank after a failure: one of the first four, or the promise is broken.
enum class End { kSucceeded, kUsable, kDead, kPoisoned, kChangedAndUsable };
const char* Name(End end);

using States = std::map<std::string, std::vector<float>>;

// One rank with a trainer that uses the library's own kernels.
class FaultRank {
 public:
  static absl::StatusOr<std::unique_ptr<FaultRank>> Create(const Config& config,
                                                           ProcessGroup* group, Device* device);
  ~FaultRank();

  // Two micro-batches and a step, to its end.
  absl::Status Step(int step);
  // The same up to its result: no verb waits for the rest.
  absl::Status StepToResult(int step);
  // Called between Step and the wait for its result.
  std::function<void()> stepped = [] {};
  // A failure of Step came from the trainer's own calls, or from waiting for the step when all of
  // it was enqueued: the optimizer has nothing to notice.
  bool harmless() const { return harmless_; }
  // What the optimizer says to one more Step.
  absl::Status StepAgain() { return optimizer_->Step().status(); }
  // What this rank owns of weights, masters and moments.
  absl::StatusOr<States> Read();

 private:
  absl::Status Use(int unit, int seed, bool backward);

  bool harmless_ = false;
  ProcessGroup* group_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceToy> toy_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
};

Model FaultModel();
Config FaultConfig(int stage);

// Where the faults are: all ranks of one trial, and one failure in it.
struct FaultBackend {
  std::function<absl::Status(int ranks,
                             const std::function<absl::Status(ProcessGroup*, Device*)>& body)>
      run_ranks;
  // The n-th call from now on fails, as rank `rank` sees it. Called by every rank before the step.
  std::function<void(int rank, int64_t n)> arm;
  std::function<void(int rank)> disarm;
  std::function<bool()> fired;
  std::function<std::string()> what;  // failed
  // Whether nothing of the device can be reached any more.
  std::function<bool(Device*)> lost = [](Device*) { return false; };
};

// The states of each rank before the second step and after it, without a failure.
struct FaultReference {
  std::vector<States> before, after;
};
absl::StatusOr<FaultReference> RunReference(const Config& config, int ranks);

// Every n until the step succeeds; how often each end was met. Checks the promise each time.
// `make` gives a fresh back end for each trial.
// At most `most` trials, for calls whose number is not bounded.
std::map<End, int> FailEverywhere(const Config& config, int ranks,
                                  const std::function<FaultBackend()>& make,
                                  int64_t most = INT64_MAX);

}  // namespace zero::test
