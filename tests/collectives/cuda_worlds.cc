#include "tests/collectives/cuda_worlds.h"

#include <thread>
#include <utility>

#include "collectives/local_group.h"
#include "collectives/nccl_group.h"
#include "device/status.h"
#include "tests/collectives/cuda_machine.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

// Null if it cannot be made.
std::unique_ptr<CudaDevice> Gpu(int id) {
  CudaDevice::Options options;
  options.id = id;
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create(options);
  return device.ok() ? *std::move(device) : nullptr;
}

class LocalOnGpu : public GroupWorld {
 public:
  LocalOnGpu(int size, absl::Duration deadline) : world_(size, deadline) {}
  ~LocalOnGpu() override { CheckCudaMachine(); }
  int size() const override { return world_.size(); }
  ProcessGroup* group(int rank) override { return world_.group(rank); }
  std::unique_ptr<Device> MakeDevice(int, const OperationHook&) override { return Gpu(0); }

 private:
  LocalWorld world_;
};

class NcclGroups : public GroupWorld {
 public:
  NcclGroups(Meeting meeting, absl::Duration deadline)
      : meeting_(std::move(meeting)), options_{deadline}, groups_(meeting_.size()) {
    for (size_t r = 0; r < groups_.size(); ++r) devices_.push_back(Gpu(static_cast<int>(r)));
  }
  ~NcclGroups() override {
    // Groups end together.
    OnEach([](size_t, std::unique_ptr<ProcessGroup>& group) { group.reset(); });
    devices_.clear();
    CloseAll(meeting_);
    CheckCudaMachine();
  }

  absl::Status Start() {
    std::vector<absl::Status> statuses(groups_.size());
    OnEach([&](size_t r, std::unique_ptr<ProcessGroup>& made) {
      auto group = CreateNcclGroup(devices_[r].get(), meeting_[r]->get(), options_);
      statuses[r] = group.status();
      if (group.ok()) made = *std::move(group);
    });
    for (const absl::Status& status : statuses) ZERO_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  int size() const override { return static_cast<int>(groups_.size()); }
  ProcessGroup* group(int rank) override { return groups_[rank].get(); }
  std::unique_ptr<Device> MakeDevice(int rank, const OperationHook&) override { return Gpu(rank); }

 private:
  void OnEach(const std::function<void(size_t, std::unique_ptr<ProcessGroup>&)>& body) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < groups_.size(); ++r) {
      threads.emplace_back([&, r] { body(r, groups_[r]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  Meeting meeting_;
  const NcclOptions options_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
  std::vector<std::unique_ptr<ProcessGroup>> groups_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GroupWorld>> MakeLocalOnGpu(int size, absl::Duration deadline) {
  PrepareCudaMachine(1);
  return std::make_unique<LocalOnGpu>(size, deadline);
}

absl::StatusOr<std::unique_ptr<GroupWorld>> MakeNcclWorld(int size, absl::Duration deadline) {
  PrepareCudaMachine(size);
  Meeting meeting = Meet(size, absl::Seconds(60));
  for (const auto& rendezvous : meeting) ZERO_RETURN_IF_ERROR(rendezvous.status());
  auto world = std::make_unique<NcclGroups>(std::move(meeting), deadline);
  ZERO_RETURN_IF_ERROR(world->Start());
  return world;
}

}  // namespace zero::test
