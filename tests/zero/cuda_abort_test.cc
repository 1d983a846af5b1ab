// Groups that die while a GPU's streams go on with whatever they have: nothing of it may pass for a
// result.
#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/fault_loop.h"
#include "tests/zero/toy_trainer.h"
#include "zero/sharded_optimizer.h"

namespace zero::test {
namespace {

// Passes on; when armed, its gather of updated weights waits until `go` and fails.
class HeldGroup : public ProcessGroup {
 public:
  HeldGroup(ProcessGroup* group, const std::atomic<bool>* go) : group_(group), go_(go) {}
  void Arm() { armed_ = true; }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::Duration deadline() const override { return group_->deadline(); }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override {
    return group_->AllToAll(stream, name, pieces);
  }
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override {
    if (armed_ && std::string(name) == kGatherWeights) {
      while (!go_->load()) std::this_thread::yield();
      return absl::UnavailableError("planted");
    }
    return group_->AllGather(stream, name, pieces);
  }
  absl::Status Barrier(const Stream& stream, const char* name) override {
    return group_->Barrier(stream, name);
  }
  const int32_t* failure_flag() const override { return group_->failure_flag(); }
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }
  absl::Status Health() const override { return group_->Health(); }
  TrafficTable traffic() const override { return group_->traffic(); }

 private:
  ProcessGroup* const group_;
  const std::atomic<bool>* const go_;
  bool armed_ = false;
};

// Passes on, and tells which stream gathers run on.
class WatchedGroup : public HeldGroup {
 public:
  explicit WatchedGroup(ProcessGroup* group) : HeldGroup(group, nullptr) {}
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override {
    communication_ = &stream;
    return HeldGroup::AllGather(stream, name, pieces);
  }
  // Waits for what has been enqueued of collectives, without a verb.
  absl::Status WaitForAll() const { return communication_->Synchronize(); }

 private:
  const Stream* communication_ = nullptr;
};

// All gradients are zero; weight decay and moments still move the weights.
absl::Status EmptyStep(ShardedOptimizer& optimizer, std::vector<Pending<StepResult>>* results) {
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(Pass::kTrainLast));
  ZERO_ASSIGN_OR_RETURN(Pending<StepResult> result, optimizer.Step());
  results->push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status Ignore(const Parameter&, int64_t, absl::Span<const float>) { return absl::OkStatus(); }

}  // namespace

TEST_CASE("Gather on NCCL: what a dying group leaves in memory is not returned as a parameter",
          "[zero][cuda][faults]") {
  const Backend nccl = NcclBackend();
  absl::Status gathered;
  CHECK_OK(nccl.run_ranks(2, absl::Seconds(20), [&](ProcessGroup* group) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, nccl.make_device(group->rank()));
    ZERO_ASSIGN_OR_RETURN(
        const auto optimizer,
        ShardedOptimizer::Create(FaultConfig(3), FaultModel(), device.get(), group));
    ZERO_RETURN_IF_ERROR(optimizer->Write(State::kMaster, InitialValues()));
    if (group->rank() == 1) {  // dies instead of gathering
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group->Abort(absl::UnavailableError("rank 1 dies"));
      return absl::OkStatus();
    }
    const Parameter& parameter = optimizer->model().units[0].parameters[0];
    std::vector<float> out(static_cast<size_t>(ElementCount(parameter)));
    gathered = optimizer->Gather(State::kWeight, parameter.name, absl::MakeSpan(out));
    return absl::OkStatus();
  }));
  INFO(gathered.ToString());
  CHECK(absl::IsAborted(gathered));
}

TEST_CASE("Faults on NCCL: a death after a step and before the next verb leaves the step done",
          "[zero][cuda][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  const Config config = FaultConfig(stage);
  const absl::StatusOr<FaultReference> reference = RunReference(config, 2);
  REQUIRE_OK(reference.status());
  const Backend nccl = NcclBackend();
  std::barrier ranks_done(2);
  absl::Status next[2];
  absl::StatusOr<States> read[2];
  CHECK_OK(nccl.run_ranks(2, absl::Seconds(20), [&](ProcessGroup* group) -> absl::Status {
    const int rank = group->rank();
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, nccl.make_device(rank));
    WatchedGroup watched(group);
    ZERO_ASSIGN_OR_RETURN(const auto trainer, FaultRank::Create(config, &watched, device.get()));
    ZERO_RETURN_IF_ERROR(trainer->StepToResult(0));
    ZERO_RETURN_IF_ERROR(watched.WaitForAll());
    ranks_done.arrive_and_wait();
    if (rank == 1) group->Abort(absl::UnavailableError("rank 1 dies"));
    while (group->Health().ok()) std::this_thread::yield();
    next[rank] = trainer->StepAgain();
    read[rank] = trainer->Read();
    return absl::OkStatus();
  }));
  for (int rank = 0; rank < 2; ++rank) {
    INFO("stage " << stage << ", rank " << rank << ": " << next[rank].ToString() << "; "
                  << read[rank].status().ToString());
    CHECK(absl::IsAborted(next[rank]));
    REQUIRE_OK(read[rank].status());
    CHECK(*read[rank] == reference->before[rank]);
  }
}

TEST_CASE("Faults on NCCL: a step that did not end is not hidden by a later one that was refused",
          "[zero][cuda][faults]") {
  for (const int ahead : {0, 1}) {
    const Backend nccl = NcclBackend();
    std::atomic<bool> go{false};
    absl::Status next[2];
    absl::Status read[2];
    CHECK_OK(nccl.run_ranks(2, absl::Seconds(20), [&](ProcessGroup* group) -> absl::Status {
      const int rank = group->rank();
      ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, nccl.make_device(rank));
      HeldGroup held(group, &go);
      ZERO_ASSIGN_OR_RETURN(
          const auto optimizer,
          ShardedOptimizer::Create(FaultConfig(1), FaultModel(), device.get(), &held));
      ZERO_RETURN_IF_ERROR(optimizer->Write(State::kMaster, InitialValues()));
      std::vector<Pending<StepResult>> results;
      ZERO_RETURN_IF_ERROR(EmptyStep(*optimizer, &results));
      ZERO_RETURN_IF_ERROR(optimizer->Finish());
      if (rank == 1) held.Arm();
      absl::Status step = EmptyStep(*optimizer, &results);
      if (rank == 0) {
        step.Update(results.back().Get().status());  // this one applied here
        for (int i = 0; i < ahead; ++i) step.Update(EmptyStep(*optimizer, &results));
        go = true;
        while (group->Health().ok()) std::this_thread::yield();
      }
      next[rank] = optimizer->BeginPass(Pass::kTrain);
      read[rank] = optimizer->Read(State::kMaster, Ignore);
      return rank == 0 ? step : absl::OkStatus();
    }));
    for (int rank = 0; rank < 2; ++rank) {
      INFO(ahead << " steps ahead, rank " << rank << ": " << next[rank].ToString() << "; "
                 << read[rank].ToString());
      CHECK(absl::IsDataLoss(next[rank]));
      CHECK(absl::IsDataLoss(read[rank]));
    }
  }
}

}  // namespace zero::test
