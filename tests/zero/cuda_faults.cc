#include "tests/zero/cuda_faults.h"

#include <atomic>
#include <memory>
#include <vector>

#include "device/status.h"
#include "tests/standin/cudart.h"

namespace zero::test {

FaultBackend OnCuda(const Backend& groups, const std::function<void(int64_t n)>& plant,
                    const std::function<bool()>& happened, const std::function<void()>& forget,
                    const std::string& what) {
  struct Ranks {
    int all = 0;
    std::atomic<int> armed{0}, disarmed{0};
    bool fired = false;
  };
  const auto state = std::make_shared<Ranks>();
  FaultBackend backend;
  backend.run_ranks =
      [state, groups](int ranks, const std::function<absl::Status(ProcessGroup*, Device*)>& body) {
        state->all = ranks;
        std::vector<std::unique_ptr<Device>> devices(static_cast<size_t>(ranks));
        return groups.run_ranks(ranks, absl::Seconds(20), [&](ProcessGroup* group) -> absl::Status {
          ZERO_ASSIGN_OR_RETURN(devices[group->rank()], groups.make_device(group->rank()));
          return body(group, devices[group->rank()].get());
        });
      };
  backend.arm = [state, plant](int, int64_t n) {
    if (++state->armed == state->all) plant(n);
  };
  // What did not happen in the step of any rank does not happen after it.
  backend.disarm = [state, happened, forget](int) {
    if (++state->disarmed < state->all) return;
    state->fired = happened();
    forget();
  };
  backend.fired = [state] { return state->fired; };
  backend.what = [what] { return what; };
  // A GPU fails as a whole: with an operation, or with a poll that says that one has.
  backend.lost = [](Device* device) {
    const auto stream = device->CreateStream("probe");
    return !stream.ok() || !(*stream)->Health().ok();
  };
  return backend;
}

FaultBackend FailingCall(const Backend& groups, const std::string& function) {
  return OnCuda(
      groups, [function](int64_t n) { standin::FailCall(function, n, cudaErrorMemoryAllocation); },
      [] { return standin::FaultsAreUsedUp(); }, [] { standin::ForgetFaults(); }, function);
}

}  // namespace zero::test
