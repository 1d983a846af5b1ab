#include "tests/zero/disk_faults.h"

#include <atomic>
#include <chrono>
#include <climits>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/io/faulty_transfers.h"

namespace zero::test {

FaultBackend FailingDisk(const Backend& groups, int error) {
  struct State {
    FaultyTransfers transfers;
    std::atomic<int> armed{0}, disarmed{0};
    std::atomic<int64_t> left{INT64_MAX};
    std::atomic<bool> fired{false};
    int ranks = 0;
  };
  const auto state = std::make_shared<State>();
  state->transfers.transfer = [raw = state.get(), error](bool, size_t*, off_t) {
    if (raw->left.fetch_sub(1) != 0) return 0;
    raw->fired = true;
    return error;
  };
  FaultBackend backend;
  backend.run_ranks =
      [state, groups](int ranks, const std::function<absl::Status(ProcessGroup*, Device*)>& body) {
        state->ranks = ranks;
        return groups.run_ranks(ranks, absl::Seconds(20), [&](ProcessGroup* group) -> absl::Status {
          ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                                groups.make_device(group->rank()));
          return body(group, device.get());
        });
      };
  backend.arm = [state](int, int64_t n) {
    if (++state->armed == state->ranks) state->left = n;
  };
  // What ranks read afterwards is not to fail.
  backend.disarm = [state](int) {
    ++state->disarmed;
    for (int ms = 0; ms < 30'000 && state->disarmed < state->ranks; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    state->left = INT64_MAX;
  };
  backend.fired = [state] { return state->fired.load(); };
  backend.what = [error] { return absl::StrCat("transfer with errno ", error); };
  return backend;
}

Config DiskFaultConfig(int stage, Place parameters, double ratio, const std::string& folder) {
  Config config = FaultConfig(stage);
  config.offload.optimizer = Place::kNvme;
  if (stage == 3) config.offload.parameters = parameters;
  config.offload.ratio = ratio;
  config.offload.nvme_path = folder;
  config.offload.piece_elements = 2048;
  config.offload.buffer_count = 2;
  return config;
}

}  // namespace zero::test
