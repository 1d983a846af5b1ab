// What a test trains on: devices, and groups of ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "device/scheduler.h"
#include "device/seeded_scheduler.h"

namespace zero::test {

struct Backend {
  std::string name;
  // Both may fail: faults are injected here.
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int rank)> make_device;
  // Runs `body` once per rank with its group; the first error that is not an echo, as RunRanks.
  std::function<absl::Status(int ranks, absl::Duration deadline,
                             const std::function<absl::Status(ProcessGroup*)>& body)>
      run_ranks;
};

// Ranks and streams that are threads, or that the scheduler runs in turn.
Backend HostBackend(const OperationHook& hook = {},
                    std::shared_ptr<SeededScheduler> scheduler = nullptr);

}  // namespace zero::test
