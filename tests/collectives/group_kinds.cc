#include "tests/collectives/group_kinds.h"

#include <utility>

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "tests/catch.h"
#include "tests/collectives/cuda_worlds.h"
#include "tests/collectives/gloo_world.h"

namespace zero::test {
namespace {

class LocalGroups : public GroupWorld {
 public:
  LocalGroups(int size, absl::Duration deadline) : world_(size, deadline) {}
  int size() const override { return world_.size(); }
  ProcessGroup* group(int rank) override { return world_.group(rank); }
  std::unique_ptr<Device> MakeDevice(int, const OperationHook& hook) override {
    HostDevice::Options options;
    options.hook = hook;
    return std::make_unique<HostDevice>(options);
  }

 private:
  LocalWorld world_;
};

absl::StatusOr<std::unique_ptr<GroupWorld>> MakeLocal(int size, absl::Duration deadline) {
  return std::make_unique<LocalGroups>(size, deadline);
}

std::vector<GroupKind> AllKinds() {
  std::vector<GroupKind> kinds = {{"local", MakeLocal, true, 3, true}};
#if ZERO_HAVE_GLOO
  kinds.push_back({"gloo", MakeGlooWorld, true, 2, false});
#endif
#if ZERO_CUDA_STANDIN || ZERO_CUDA_GPU
  kinds.push_back({"local on a GPU", MakeLocalOnGpu, false, 0, true});
#endif
#if ZERO_CUDA_STANDIN
  kinds.push_back({"nccl", MakeNcclWorld, false, 0, false, false, absl::Milliseconds(300)});
#endif
  return kinds;
}

std::vector<size_t> KindsWith(bool GroupKind::*property) {
  std::vector<size_t> found;
  for (size_t i = 0; i < GroupKinds().size(); ++i) {
    if (GroupKinds()[i].*property) found.push_back(i);
  }
  return found;
}

}  // namespace

const std::vector<GroupKind>& GroupKinds() {
  static const std::vector<GroupKind> kinds = AllKinds();
  return kinds;
}

const GroupKind& LocalKind() { return GroupKinds().front(); }

const GroupKind& EachKind() {
  return GroupKinds()[GENERATE(range(size_t{0}, GroupKinds().size()))];
}

const GroupKind& EachComparingKind() {
  static const std::vector<size_t> kinds = KindsWith(&GroupKind::compares_calls);
  return GroupKinds()[kinds[GENERATE_REF(range(size_t{0}, kinds.size()))]];
}

const GroupKind& EachHostKind() {
  static const std::vector<size_t> kinds = KindsWith(&GroupKind::host_streams);
  return GroupKinds()[kinds[GENERATE_REF(range(size_t{0}, kinds.size()))]];
}

std::unique_ptr<GroupWorld> MakeWorld(const GroupKind& kind, int size, absl::Duration deadline) {
  absl::StatusOr<std::unique_ptr<GroupWorld>> world = kind.make(size, deadline);
  INFO(kind.name << ": " << world.status().ToString());
  REQUIRE(world.ok());
  return *std::move(world);
}

}  // namespace zero::test
