// A trainer without a model: gradients are a given function of rank, step, element and weight, so
// that a run can be repeated with other stages, and compared bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/local_group.h"
#include "device/scheduler.h"
#include "device/seeded_scheduler.h"
#include "tests/zero/backend.h"
#include "zero/sharded_optimizer.h"

namespace zero::test {

struct ToyRun {
  Config config;
  Model model;
  int ranks = 1;
  int micro_batches = 1;
  int steps = 3;
  // Gradients whose sums are exact in fp32 in any order, and do not depend on the weights.
  bool exact_gradients = false;
  // A unit that nothing reports in the second step; -1: none.
  int passed_over_unit = -1;
  // (unit, parameter) that the trainer does not write in any pass; -1: none.
  int unwritten_unit = -1;
  int unwritten_parameter = -1;
  int skip_step = -1;  // from this step on, gradients are those of the next one
  // Gradients are multiplied by the loss scale that lies on the device, as those of a scaled loss
  // are. Host only.
  bool scaled = false;
  // In this step (from 0; -1: none) this rank's gradient of this unit's first parameter has an inf.
  int overflow_step = -1;
  int overflow_rank = 0;
  int overflow_unit = 0;
  bool evaluate_between = false;  // evaluation passes before and after every step
  int evaluate_within = 0;        // evaluation passes between micro-batches
  Backend backend = HostBackend();
  // Of every device, and of all ranks (null: threads); with either, the back end is the host's.
  OperationHook hook;
  std::shared_ptr<SeededScheduler> scheduler;
  int first_step = 0;  // a run that goes on has done those before
  // Called on every rank once the initial values are written, and before each step and after the
  // last one, which counts as `steps`. Null: nothing to do.
  std::function<absl::Status(ShardedOptimizer&, int rank)> start;
  std::function<absl::Status(ShardedOptimizer&, int rank, int step)> between;
  std::function<double(int rank, int step)> loss_weight;  // null: none
  bool weight_with_pass = false;                          // it is given to BeginPass, not to Step
  std::function<void(int rank, int step, std::vector<float>& gradient)> spoil;  // per parameter
  Adopted adopted;
  absl::Duration deadline = absl::Seconds(20);
};

struct Outcome {
  absl::Status status;
  std::vector<StepResult> steps;  // of rank 0
  std::map<std::string, std::vector<float>> weights, masters, moment1, moment2;
  Plan plan;
  MemoryTable memory = {};            // of rank 0, before gathering
  std::vector<TrafficTable> traffic;  // of rank 0, after each step
  std::vector<int64_t> allocations;   // likewise
  int64_t live_bytes_left = 0;        // on any device, at the end
};

Outcome RunToy(const ToyRun& run);

// What the toy writes as the gradient of a parameter whose weights are `weight`: the sum over
// `uses` in the pass, rounded to its dtype each time.
std::vector<float> ToyGradient(const ToyRun& run, const Parameter& parameter, int rank, int step,
                               int micro, const std::vector<float>& weight, int uses);

// Names used as the "shapes" factor of matrices: each a model that is awkward in another way.
std::vector<std::string> ModelNames();
Model MakeModel(const std::string& name, DType dtype);

// The toy's initial values.
Source InitialValues();

// Same bits in everything that was gathered, and in norms and coefficients.
bool SameState(const Outcome& a, const Outcome& b);
std::string FirstDifference(const Outcome& a, const Outcome& b);

}  // namespace zero::test
