#include "collectives/checked_group.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

// A group that compares nothing: a call waits for calls of the others that never come.
class CarelessGroup : public ProcessGroup {
 public:
  explicit CarelessGroup(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}
  int rank() const override { return rendezvous_.rank(); }
  int size() const override { return rendezvous_.size(); }
  absl::Duration deadline() const override { return absl::Minutes(10); }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override {
    if (!pieces.empty() && pieces[0].bytes < 0) return absl::InvalidArgumentError("negative");
    return Wait(stream, name);
  }
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece>) override {
    return Wait(stream, name);
  }
  absl::Status Barrier(const Stream& stream, const char* name) override {
    return Wait(stream, name);
  }
  void Abort(const absl::Status& reason) override {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    if (failure_.ok()) failure_ = reason;
    gate_->changed.notify_all();
  }
  absl::Status Health() const override {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    return failure_;
  }
  TrafficTable traffic() const override { return {}; }

 private:
  absl::Status Wait(const Stream& stream, const char* name) {
    Operation wait;
    wait.name = name;
    wait.gate = gate_;
    wait.ready = [this] { return !failure_.ok(); };
    wait.run = [this] { return Health(); };
    return stream.Enqueue(std::move(wait));
  }
  Rendezvous& rendezvous_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  absl::Status failure_;
};

TEST_CASE("CheckedGroup: calls that differ end a group that would hang and are named on all ranks",
          "[collectives][thread]") {
  Meeting meeting = Meet(3, absl::Minutes(5));
  const double start = Seconds();
  const auto statuses = OnEachMember(meeting, [](Rendezvous& rendezvous) {
    CarelessGroup careless(rendezvous);
    CheckedGroup group(&careless, &rendezvous);
    HostDevice device;
    const auto stream = *device.CreateStream("s");
    char memory[64];
    // A call that is refused counts as none.
    const AllToAllPiece bad{memory, 0, memory, -1};
    if (rendezvous.rank() == 0) (void)group.AllToAll(*stream, "refused", {&bad, 1});
    const AllToAllPiece exchange{memory, 8, memory, 8};
    (void)group.AllToAll(*stream, "gradients", {&exchange, 1});
    const int64_t bytes = rendezvous.rank() == 2 ? 12 : 16;
    const AllGatherPiece gather{memory, memory, bytes, bytes};
    (void)group.AllGather(*stream, "weights", {&gather, 1});
    return stream->Synchronize();
  });
  CHECK(Seconds() - start < 20);
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    const std::string text(status.message());
    CHECK_THAT(text, ContainsSubstring("collective 1: "));
    CHECK_THAT(text, ContainsSubstring("rank 2 called all-gather 'weights' of 12 bytes"));
    CHECK((text.find("rank 0 called all-gather 'weights' of 16 bytes") != std::string::npos ||
           text.find("rank 1 called all-gather 'weights' of 16 bytes") != std::string::npos));
  }
}

TEST_CASE("CheckedGroup: ordered reductions are passed on and compared", "[collectives][thread]") {
  Meeting meeting = Meet(2, absl::Minutes(5));
  LocalWorld world(2);
  const auto statuses = OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
    const int rank = rendezvous.rank();
    CheckedGroup group(world.group(rank), &rendezvous);
    if (!group.has_ordered_reduction(DeviceKind::kHost)) return absl::InternalError("not passed");
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(const auto stream, device.CreateStream("s"));
    const std::vector<float> sent = {1.0f + rank, 2.0f, 3.0f, 4.0f};
    std::vector<float> sum(2);
    ReductionPiece piece;
    piece.send = sent.data();
    piece.slice = piece.columns = 2;
    piece.out = sum.data();
    ZERO_RETURN_IF_ERROR(group.ReduceInOrder(*stream, "sums", {&piece, 1}));
    ZERO_RETURN_IF_ERROR(stream->Synchronize());
    const std::vector<float> expected =
        rank == 0 ? std::vector<float>{3, 4} : std::vector<float>{6, 8};
    if (sum != expected) return absl::InternalError("other sums");
    piece.columns = 1 + rank;
    const absl::Status called = group.ReduceInOrder(*stream, "more", {&piece, 1});
    if (called.ok()) return stream->Synchronize();
    // The two calls were compared before this one began: refused, and the group says why.
    if (!absl::IsAborted(called)) return called;
    return group.Health();
  });
  for (const absl::Status& status : statuses) {
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("rank 1 called ordered reduction 'more' of 8 bytes"));
  }
}

}  // namespace
}  // namespace zero::test
