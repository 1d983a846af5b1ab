// What is offloaded from CUDA devices, which run on stand-ins here, is updated by the host's
// kernels and gives the host's bits.
#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <string>

#include "device/status.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"
#include "tests/standin/cudart.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/cuda_faults.h"
#include "tests/zero/disk_faults.h"
#include "tests/zero/offload_cells.h"

namespace zero::test {
namespace {

// Part `part` of `parts` of the pairs.
void CheckCells(const Backend& backend, size_t part, size_t parts) {
  const std::vector<OffloadCell> cells = MakeOffloadCells(2);
  for (size_t i = part; i < cells.size(); i += parts) CheckOffloadCell(cells[i], backend);
}

}  // namespace

TEST_CASE("Offload on CUDA: every pair of factors gives the bits of the host over NCCL",
          "[zero][cuda][matrix]") {
  CheckCells(NcclBackend(), GENERATE(0, 1, 2, 3), 4);
}

TEST_CASE("Offload on CUDA: every pair of factors gives the bits of the host on one GPU",
          "[zero][cuda][matrix]") {
  CheckCells(LocalCudaBackend(), GENERATE(0, 1, 2, 3), 4);
}

namespace {

Config DuringBackward(Config config) {
  config.clip_norm = 0;
  config.check_overflow = false;
  return config;
}

// A GPU goes on after a wait for what failed on the host.
void FailTheDisk(const Backend& backend) {
  struct Case {
    int stage;
    Place parameters;
    double ratio;
    int ranks;
    bool during_backward = false;  // units are updated
  };
  const Case cases[] = {{3, Place::kDevice, 1, 1},      {3, Place::kDevice, 0.6, 2},
                        {2, Place::kDevice, 1, 1},      {2, Place::kDevice, 1, 2},
                        {1, Place::kDevice, 0.6, 1},    {3, Place::kNvme, 1, 2},
                        {3, Place::kHost, 0.6, 1},      {3, Place::kDevice, 0.6, 2, true},
                        {2, Place::kDevice, 1, 2, true}};
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    INFO(backend.name << ", stage " << c.stage << ", parameters " << Name(c.parameters)
                      << ", ratio " << c.ratio << ", ranks " << c.ranks
                      << (c.during_backward ? ", updated during backward" : ""));
    Config config = DiskFaultConfig(c.stage, c.parameters, c.ratio, folder.path());
    if (c.during_backward) config = DuringBackward(config);
    std::map<End, int> met = FailEverywhere(
        config, c.ranks, [&] { return FailingDisk(backend, EIO); }, 60);
    CHECK(met[End::kDead] + met[End::kPoisoned] > 0);
    CHECK(folder.Names().empty());
  }
}

void FailEveryCall(const Backend& backend, Config config) {
  for (const auto& [function, most] : {std::pair<const char*, int64_t>{"cudaMemcpyAsync", 60},
                                       {"cudaLaunchKernel", 30},
                                       {"cudaEventRecord", 60},
                                       {"cudaStreamWaitEvent", 60},
                                       {"cuStreamWaitValue32", 60}}) {
    INFO(backend.name << ", " << function << ", " << Name(config.offload.optimizer));
    const auto make = [&backend, name = std::string(function)] {
      return FailingCall(backend, name);
    };
    std::map<End, int> met = FailEverywhere(config, 2, make, most);
    CHECK(met[End::kDead] + met[End::kPoisoned] > 0);
  }
}

}  // namespace

TEST_CASE(
    "Offload on CUDA: whatever transfer of a disk fails is never changed and usable over NCCL",
    "[zero][cuda][faults]") {
  FailTheDisk(NcclBackend());
}

TEST_CASE("Offload on CUDA: whatever transfer of a disk fails is never changed and usable on a GPU",
          "[zero][cuda][faults]") {
  FailTheDisk(LocalCudaBackend());
}

TEST_CASE("Offload on CUDA: the result of a step in which a disk fails names file and reason",
          "[zero][cuda][faults]") {
  for (const Backend& backend : {NcclBackend(), LocalCudaBackend()}) {
    INFO(backend.name);
    const TemporaryFolder folder;
    FaultyTransfers transfers;
    std::atomic<bool> fails{false};
    std::promise<void> step_is_enqueued;
    const std::shared_future<void> enqueued = step_is_enqueued.get_future().share();
    transfers.transfer = [&](bool writes, size_t*, off_t) {
      if (!fails || !writes) return 0;
      // Otherwise a verb would meet the failure first.
      enqueued.wait();
      return EIO;
    };
    absl::Status result;
    const absl::Status all =
        backend.run_ranks(1, absl::Seconds(20), [&](ProcessGroup* group) -> absl::Status {
          ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                                backend.make_device(group->rank()));
          ZERO_ASSIGN_OR_RETURN(
              const std::unique_ptr<FaultRank> rank,
              FaultRank::Create(DiskFaultConfig(2, Place::kDevice, 1, folder.path()), group,
                                device.get()));
          ZERO_RETURN_IF_ERROR(rank->Step(0));
          fails = true;
          rank->stepped = [&] { step_is_enqueued.set_value(); };
          result = rank->StepToResult(1);
          return absl::OkStatus();
        });
    CHECK_OK(all);
    INFO(result);
    CHECK(absl::IsUnavailable(result));
    const std::string message(result.message());
    CHECK_THAT(message, ContainsSubstring("step 2: rank 0: " + folder.path()) &&
                            ContainsSubstring(" bytes at byte ") &&
                            ContainsSubstring("Input/output error"));
  }
}

TEST_CASE(
    "Offload on CUDA: whatever CUDA call of a step fails leaves it done or undone or poisoned",
    "[zero][cuda][faults]") {
  const TemporaryFolder folder;
  Config config = DiskFaultConfig(3, Place::kHost, 0.6, folder.path());
  config.offload.optimizer = Place::kHost;
  SECTION("in memory") { FailEveryCall(NcclBackend(), config); }
  SECTION("in memory during backward") { FailEveryCall(NcclBackend(), DuringBackward(config)); }
  SECTION("on a disk") {
    FailEveryCall(LocalCudaBackend(), DiskFaultConfig(3, Place::kNvme, 0.6, folder.path()));
  }
}

TEST_CASE(
    "Offload on CUDA: whichever memory cannot be pinned the bits are the same or it is refused",
    "[zero][cuda]") {
  for (const Place place : {Place::kHost, Place::kNvme}) {
    OffloadCell cell;
    cell.optimizer = cell.parameters = place;
    cell.model = "tiny";
    cell.ratio = 0.3;
    const Outcome kept = RunToy(MakeRun(cell, ""));
    REQUIRE_OK(kept.status);
    int pageable = 0, refused = 0;
    bool flag_refused = false;
    for (int n = 0;; ++n) {
      INFO(Name(place) << ", allocation " << n);
      const TemporaryFolder folder;
      ToyRun run = MakeRun(cell, folder.path());
      const Backend groups = LocalCudaBackend();
      run.backend = groups;
      run.backend.run_ranks = [&](int ranks, absl::Duration deadline,
                                  const std::function<absl::Status(ProcessGroup*)>& body) {
        return groups.run_ranks(ranks, deadline, [&](ProcessGroup* group) {
          standin::FailCall("cudaHostAlloc", n, cudaErrorMemoryAllocation);
          return body(group);
        });
      };
      const Outcome outcome = RunToy(run);
      const bool all = !standin::FaultsAreUsedUp();
      standin::ForgetFaults();
      CHECK(folder.Names().empty());
      CHECK(outcome.live_bytes_left == 0);
      if (outcome.status.ok()) {
        CHECK(FirstDifference(kept, outcome) == "");
        if (all) break;
        ++pageable;
      } else {
        INFO(outcome.status);
        CHECK(absl::IsResourceExhausted(outcome.status));
        const std::string message(outcome.status.message());
        CHECK_THAT(message, ContainsSubstring("pinned"));
        flag_refused |= message.find("flag of a disk that fails") != std::string::npos;
        ++refused;
      }
    }
    CHECK(pageable > 3);
    CHECK(refused > 0);
    // Kernels read it.
    CHECK(flag_refused == (place == Place::kNvme));
  }
}

TEST_CASE("Offload on CUDA: a small matrix has no data race", "[zero][cuda][thread]") {
  OffloadCell cell;
  cell.ranks = 2;
  cell.micro_batches = 2;
  cell.model = "large";
  CheckOffloadCell(cell, NcclBackend());
  cell.optimizer = Place::kNvme;
  cell.parameters = Place::kNvme;
  cell.ratio = 0.3;
  CheckOffloadCell(cell, LocalCudaBackend());
}

}  // namespace zero::test
