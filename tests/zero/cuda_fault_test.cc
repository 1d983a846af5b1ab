// The loops over all failures of a step, where it runs through CUDA and NCCL calls.
#include <atomic>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "device/cuda_device.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/standin/cudart.h"
#include "tests/standin/nccl_standin.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/cuda_faults.h"
#include "tests/zero/fault_loop.h"

namespace zero::test {
namespace {

constexpr int64_t kAll = INT64_MAX;

// Everything that a step calls of CUDA fails in turn, at every call. Polls go on for as long as
// they must: only some of them.
void FailEveryCudaCall(int stage, const Backend& groups) {
  const std::pair<const char*, int64_t> functions[] = {
      {"cudaMemcpyAsync", kAll}, {"cudaMemsetAsync", kAll},     {"cudaLaunchKernel", kAll},
      {"cudaEventRecord", kAll}, {"cudaStreamWaitEvent", kAll}, {"cudaEventCreateWithFlags", kAll},
      {"cudaEventQuery", 10},    {"cudaStreamQuery", 10}};
  std::map<End, int> met;
  for (const auto& [function, most] : functions) {
    INFO(groups.name << ", " << function);
    const auto make = [&, name = std::string(function)] { return FailingCall(groups, name); };
    for (const auto& [end, count] : FailEverywhere(FaultConfig(stage), 2, make, most))
      met[end] += count;
  }
  CHECK(met[End::kDead] > 0);
  CHECK(met[End::kSucceeded] > 0);
}

}  // namespace

TEST_CASE(
    "Faults on CUDA: whatever CUDA call of stage 0 fails leaves it done or undone or poisoned",
    "[zero][cuda][faults]") {
  FailEveryCudaCall(0, NcclBackend());
}
TEST_CASE(
    "Faults on CUDA: whatever CUDA call of stage 1 fails leaves it done or undone or poisoned",
    "[zero][cuda][faults]") {
  FailEveryCudaCall(1, NcclBackend());
}
TEST_CASE(
    "Faults on CUDA: whatever CUDA call of stage 2 fails leaves it done or undone or poisoned",
    "[zero][cuda][faults]") {
  FailEveryCudaCall(2, LocalCudaBackend());
}
TEST_CASE(
    "Faults on CUDA: whatever CUDA call of stage 3 fails leaves it done or undone or poisoned",
    "[zero][cuda][faults]") {
  FailEveryCudaCall(3, NcclBackend());
}

TEST_CASE("Faults on CUDA: whatever NCCL call of a step fails leaves it done or undone or poisoned",
          "[zero][cuda][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  std::map<End, int> met;
  for (const std::string name : {"ncclSend", "ncclRecv", "ncclAllGather", "ncclGroupEnd"}) {
    INFO(name);
    const auto make = [&name] {
      return OnCuda(
          NcclBackend(),
          [name](int64_t n) { standin::FailNccl(name, static_cast<int>(n) + 1, ncclSystemError); },
          [] { return standin::NcclHasFailed(); }, [] { standin::FailNccl("", 0, ncclSuccess); },
          name);
    };
    for (const auto& [end, count] : FailEverywhere(FaultConfig(stage), 2, make)) met[end] += count;
  }
  CHECK(met[End::kDead] + met[End::kPoisoned] > 0);
  CHECK(met[End::kSucceeded] > 0);
}

TEST_CASE("Faults on CUDA: a GPU that ends anywhere in a step is never changed and usable",
          "[zero][cuda][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  std::map<End, int> met;
  const auto make = [] {
    return OnCuda(
        LocalCudaBackend(),
        // Every seventh operation: a step has some hundreds.
        [](int64_t n) { standin::EndDeviceAfter(0, 7 * n, cudaErrorIllegalAddress); },
        [] { return standin::EndOf(0) != ""; }, [] {}, "the GPU");
  };
  for (const auto& [end, count] : FailEverywhere(FaultConfig(stage), 2, make, 60))
    met[end] += count;
  CHECK(met[End::kDead] > 0);
  CHECK(met[End::kPoisoned] > 0);
}

}  // namespace zero::test
