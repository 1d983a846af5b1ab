#include "collectives/reduction_kind.h"

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "tests/catch.h"

namespace zero::test {
namespace {

// Only says what it can do.
class Group : public ProcessGroup {
 public:
  Group(bool native, bool one_host) : native_(native), one_host_(one_host) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::Duration deadline() const override { return absl::Seconds(1); }
  absl::Status AllToAll(const Stream&, const char*, absl::Span<const AllToAllPiece>) override {
    return absl::OkStatus();
  }
  absl::Status AllGather(const Stream&, const char*, absl::Span<const AllGatherPiece>) override {
    return absl::OkStatus();
  }
  absl::Status Barrier(const Stream&, const char*) override { return absl::OkStatus(); }
  bool has_native_reduction() const override { return native_; }
  bool single_host() const override { return one_host_; }
  void Abort(const absl::Status&) override {}
  absl::Status Health() const override { return absl::OkStatus(); }
  TrafficTable traffic() const override { return {}; }

 private:
  const bool native_;
  const bool one_host_;
};

ReductionKind Chosen(ReductionKind kind, bool native, bool one_host) {
  const absl::StatusOr<ReductionChoice> choice = ChooseReduction(kind, Group(native, one_host));
  REQUIRE_OK(choice.status());
  CHECK(choice->text.find(Name(choice->kind)) == 0);
  return choice->kind;
}

TEST_CASE("ReductionKind: auto is ordered on one host and else native where there is one",
          "[collectives]") {
  CHECK(Chosen(ReductionKind::kAuto, true, true) == ReductionKind::kOrdered);
  CHECK(Chosen(ReductionKind::kAuto, false, true) == ReductionKind::kOrdered);
  CHECK(Chosen(ReductionKind::kAuto, true, false) == ReductionKind::kNative);
  CHECK(Chosen(ReductionKind::kAuto, false, false) == ReductionKind::kOrdered);
}

TEST_CASE("ReductionKind: what is configured is taken or refused", "[collectives]") {
  CHECK(Chosen(ReductionKind::kOrdered, true, false) == ReductionKind::kOrdered);
  CHECK(Chosen(ReductionKind::kNative, true, true) == ReductionKind::kNative);
  const absl::Status refused =
      ChooseReduction(ReductionKind::kNative, Group(false, false)).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(std::string(refused.message()).find("ordered") != std::string::npos);
}

TEST_CASE("ReductionKind: names are read back and others refused", "[collectives]") {
  for (ReductionKind kind :
       {ReductionKind::kOrdered, ReductionKind::kNative, ReductionKind::kAuto}) {
    CHECK(ParseReductionKind(Name(kind)).value() == kind);
  }
  const absl::Status refused = ParseReductionKind("ring").status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(std::string(refused.message()).find("ordered, native, auto") != std::string::npos);
}

TEST_CASE("ReductionKind: a local group is on one host and has no reduction of its own",
          "[collectives]") {
  LocalWorld world(2);
  ProcessGroup& group = *world.group(0);
  CHECK(group.single_host());
  CHECK(!group.has_native_reduction());
  CHECK(group.failure_flag() == nullptr);
  HostDevice device;
  const absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateStream("s");
  REQUIRE_OK(stream.status());
  CHECK(absl::IsUnimplemented(group.ReduceScatter(**stream, "reduce", {})));
}

}  // namespace
}  // namespace zero::test
