#include "tests/zero/cuda_backends.h"

#include <exception>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/cuda_device.h"
#include "tests/collectives/cuda_worlds.h"

namespace zero::test {
namespace {

using MakeWorldFunction = absl::StatusOr<std::unique_ptr<GroupWorld>> (*)(int size,
                                                                          absl::Duration deadline);

// As RunRanks does it for ranks that share a LocalWorld.
absl::Status RunWorld(GroupWorld& world, const std::function<absl::Status(ProcessGroup*)>& body) {
  std::mutex mutex;
  absl::Status first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status = body(world.group(rank));
      if (status.ok()) return;
      world.group(rank)->Abort(status);
      std::lock_guard<std::mutex> lock(mutex);
      if (first.ok() || (absl::IsAborted(first) && !absl::IsAborted(status))) first = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

Backend OnWorlds(const std::string& name, MakeWorldFunction make, bool shared) {
  Backend backend;
  backend.name = name;
  backend.make_device = [shared](int rank) -> absl::StatusOr<std::unique_ptr<Device>> {
    CudaDevice::Options options;
    options.id = shared ? 0 : rank;
    return CudaDevice::Create(options);
  };
  backend.run_ranks = [make](int ranks, absl::Duration deadline,
                             const std::function<absl::Status(ProcessGroup*)>& body) {
    absl::StatusOr<std::unique_ptr<GroupWorld>> world = make(ranks, deadline);
    if (!world.ok()) return world.status();
    return RunWorld(**world, body);
  };
  return backend;
}

}  // namespace

Backend LocalCudaBackend() { return OnWorlds("local on a GPU", MakeLocalOnGpu, true); }
Backend NcclBackend() { return OnWorlds("nccl", MakeNcclWorld, false); }

}  // namespace zero::test
