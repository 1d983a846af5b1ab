// The reduction where the group adds by itself.
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "collectives/ordered_reduction.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/catch.h"

namespace zero::test {
namespace {

constexpr int kRanks = 3;

// A local group that adds fp32, last rank first, by an all-to-all and an operation of the stream.
class AddingGroup : public ProcessGroup {
 public:
  explicit AddingGroup(ProcessGroup* group) : group_(group) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::Duration deadline() const override { return group_->deadline(); }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override {
    return group_->AllToAll(stream, name, pieces);
  }
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override {
    return group_->AllGather(stream, name, pieces);
  }
  absl::Status Barrier(const Stream& stream, const char* name) override {
    return group_->Barrier(stream, name);
  }
  bool has_native_reduction() const override { return true; }
  bool single_host() const override { return false; }
  absl::Status ReduceScatter(const Stream& stream, const char* name,
                             absl::Span<const ReduceScatterPiece> pieces) override {
    for (const ReduceScatterPiece& piece : pieces) {
      const auto n = static_cast<size_t>(piece.elements);
      const auto parts = std::make_shared<std::vector<float>>(n * kRanks);
      const AllToAllPiece moved{piece.send, piece.send_stride, parts->data(),
                                piece.elements * int64_t{sizeof(float)}};
      ZERO_RETURN_IF_ERROR(group_->AllToAll(stream, name, {&moved, 1}));
      ZERO_RETURN_IF_ERROR(stream.Enqueue("add", [parts, piece, n] {
        float* const out = static_cast<float*>(piece.receive);
        for (size_t i = 0; i < n; ++i) {
          out[i] = (*parts)[2 * n + i] + (*parts)[n + i] + (*parts)[i];
        }
        return absl::OkStatus();
      }));
    }
    return absl::OkStatus();
  }
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }
  absl::Status Health() const override { return group_->Health(); }
  TrafficTable traffic() const override { return group_->traffic(); }

 private:
  ProcessGroup* const group_;
};

// Small whole numbers: exact in any order.
float ValueOf(int rank, int64_t i) { return static_cast<float>((rank * 5 + i * 3) % 17 - 8); }

absl::Status ReduceTwice(ProcessGroup* local, ReductionKind kind, const std::string& choice) {
  constexpr int64_t kSlice = 100;
  AddingGroup group(local);
  HostDevice device;
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> communication, device.CreateStream("comm"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> arithmetic, device.CreateStream("math"));
  ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction,
                        OrderedReduction::Create(&device, &group, 4 * kSlice * kRanks + 64, kind));
  if (reduction.reduction_choice().find(choice) != 0) return absl::InternalError("other choice");
  std::vector<float> send(kSlice * kRanks);
  for (int64_t i = 0; i < kSlice * kRanks; ++i) send[i] = ValueOf(group.rank(), i);
  std::vector<float> out(kSlice, 1000);
  // Two pieces of columns; then once more, added.
  for (const bool accumulate : {false, true}) {
    const std::vector<ReductionPiece> pieces = {
        {send.data(), kSlice, 30, DType::kF32, out.data(), DType::kF32, accumulate},
        {send.data() + 30, kSlice, 70, DType::kF32, out.data() + 30, DType::kF32, accumulate}};
    ZERO_RETURN_IF_ERROR(reduction.Run(*communication, *arithmetic, "reduce", pieces));
  }
  ZERO_RETURN_IF_ERROR(communication->Synchronize());
  ZERO_RETURN_IF_ERROR(arithmetic->Synchronize());
  for (int64_t i = 0; i < kSlice; ++i) {
    float sum = 0;
    for (int q = 0; q < kRanks; ++q) sum += ValueOf(q, group.rank() * kSlice + i);
    if (out[i] != 2 * sum) return absl::InternalError(absl::StrCat("element ", i));
  }
  return absl::OkStatus();
}

TEST_CASE("OrderedReduction: the native kind leaves the sum to the group and accumulates as before",
          "[collectives][thread]") {
  for (const ReductionKind kind : {ReductionKind::kNative, ReductionKind::kAuto}) {
    LocalWorld world(kRanks, absl::Seconds(60));
    CHECK_OK(
        RunRanks(world, [&](ProcessGroup* group) { return ReduceTwice(group, kind, "native"); }));
    // Each of the two calls went as two pieces by the group's own path.
    CHECK(world.group(0)->traffic()["reduce"].calls == 4);
  }
  LocalWorld world(kRanks, absl::Seconds(60));
  CHECK_OK(RunRanks(world, [&](ProcessGroup* group) {
    return ReduceTwice(group, ReductionKind::kOrdered, "ordered");
  }));
  CHECK(world.group(0)->traffic()["reduce"].calls == 2);
}

TEST_CASE("OrderedReduction: the native kind is refused by a group without one", "[collectives]") {
  LocalWorld world(2);
  HostDevice device;
  CHECK(absl::IsInvalidArgument(
      OrderedReduction::Create(&device, world.group(0), 64, ReductionKind::kNative).status()));
  CHECK(device.allocations() == 0);
}

}  // namespace
}  // namespace zero::test
