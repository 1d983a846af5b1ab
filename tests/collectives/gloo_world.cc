#include "tests/collectives/gloo_world.h"

#include <thread>
#include <utility>

#include "collectives/gloo_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

class GlooGroups : public GroupWorld {
 public:
  GlooGroups(Meeting meeting, absl::Duration deadline)
      : meeting_(std::move(meeting)), deadline_(deadline), groups_(meeting_.size()) {}
  ~GlooGroups() override {
    groups_.clear();
    CloseAll(meeting_);
  }

  absl::Status Start() {
    std::vector<absl::Status> statuses(groups_.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < groups_.size(); ++r) {
      threads.emplace_back([&, r] {
        auto group = GlooGroup::Create({meeting_[r]->get(), deadline_});
        statuses[r] = group.status();
        if (group.ok()) groups_[r] = *std::move(group);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) ZERO_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  int size() const override { return static_cast<int>(groups_.size()); }
  ProcessGroup* group(int rank) override { return groups_[rank].get(); }
  std::unique_ptr<Device> MakeDevice(int, const OperationHook& hook) override {
    HostDevice::Options options;
    options.hook = hook;
    return std::make_unique<HostDevice>(options);
  }

 private:
  Meeting meeting_;
  const absl::Duration deadline_;
  std::vector<std::unique_ptr<GlooGroup>> groups_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GroupWorld>> MakeGlooWorld(int size, absl::Duration deadline) {
  // A deadline of milliseconds is for collectives; ranks that meet get the time that they need.
  Meeting meeting = Meet(size, absl::Seconds(60));
  for (const auto& rendezvous : meeting) ZERO_RETURN_IF_ERROR(rendezvous.status());
  auto world = std::make_unique<GlooGroups>(std::move(meeting), deadline);
  ZERO_RETURN_IF_ERROR(world->Start());
  return world;
}

}  // namespace zero::test
