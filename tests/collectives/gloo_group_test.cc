// What is particular to ranks that talk over Gloo; what all groups promise is in
// group_contract_test.cc and group_failure_test.cc.
#include "collectives/gloo_group.h"

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/checked_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/collectives/group_test_util.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

const absl::Duration kLong = absl::Minutes(5);
constexpr double kSoon = 20;

struct Device1 {  // a device with one stream
  HostDevice device;
  std::unique_ptr<Stream> stream = *device.CreateStream("s");
};

absl::Status Barrier(ProcessGroup& group, const char* name) {
  Device1 own;
  ZERO_RETURN_IF_ERROR(group.Barrier(*own.stream, name));
  return own.stream->Synchronize();
}

TEST_CASE("GlooGroup: several groups share a rendezvous and IPv6 serves", "[collectives][thread]") {
  for (const char* address : {"127.0.0.1", "::1"}) {
    CAPTURE(address);
    Meeting meeting = Meet(2, kLong, [&](RendezvousOptions& o) { o.address = address; });
    CHECK(FirstError(OnEachMember(meeting, [](Rendezvous& rendezvous) -> absl::Status {
            ZERO_ASSIGN_OR_RETURN(const auto first, GlooGroup::Create({&rendezvous, kLong}));
            ZERO_ASSIGN_OR_RETURN(const auto second, GlooGroup::Create({&rendezvous, kLong}));
            CheckedGroup checked(second.get(), &rendezvous);
            for (int round = 0; round < 3; ++round) {
              ZERO_RETURN_IF_ERROR(Barrier(*first, "one"));
              ZERO_RETURN_IF_ERROR(Barrier(checked, "two"));
            }
            return absl::OkStatus();
          })) == "");
    CHECK(FirstError(CloseAll(meeting)) == "");
  }
}

TEST_CASE("GlooGroup: a rank that is gone is named with the call that waits for it",
          "[collectives][thread]") {
  Meeting meeting = Meet(3, kLong);
  std::latch waiting(2);
  const double start = Seconds();
  std::vector<absl::Status> later(3);
  const auto statuses = OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
    const int rank = rendezvous.rank();
    ZERO_ASSIGN_OR_RETURN(auto group, GlooGroup::Create({&rendezvous, kLong}));
    if (rank == 2) {
      waiting.wait();
      Sleep(20);
      group.reset();  // as when the process ends, its sockets close one after the other
      meeting[2]->reset();
      return absl::OkStatus();
    }
    Device1 own;
    ZERO_RETURN_IF_ERROR(group->Barrier(*own.stream, "meet"));
    waiting.count_down();
    const absl::Status status = own.stream->Synchronize();
    later[rank] = Barrier(*group, "later");
    return status;
  });
  CHECK(Seconds() - start < kSoon);
  for (int r : {0, 1}) {
    INFO(statuses[r].ToString());
    CHECK(absl::IsAborted(statuses[r]));
    CHECK_THAT(std::string(statuses[r].message()), ContainsSubstring("barrier 'meet'"));
    CHECK_THAT(std::string(statuses[r].message()), ContainsSubstring("rank 2 is gone"));
    CHECK(absl::IsAborted(later[r]));
    CHECK_THAT(std::string(later[r].message()), ContainsSubstring("barrier 'later'"));
    CHECK_THAT(std::string(later[r].message()), ContainsSubstring("rank 2 is gone"));
  }
}

TEST_CASE("GlooGroup: a failed call ends though rank 0 does not answer and the group is checked",
          "[collectives][thread]") {
  HeldLine line;
  Meeting meeting = Meet(2, kLong, [&](RendezvousOptions& o) { line.Join(o, 1); });
  const auto statuses = OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(const auto group,
                          GlooGroup::Create({&rendezvous, absl::Milliseconds(500)}));
    CheckedGroup checked(group.get(), &rendezvous);
    if (rendezvous.rank() == 1) {
      line.Hold(true);
      // The thread of the call gives up, and what it calls then ends in Abort of the group.
      const absl::Status status = Barrier(checked, "alone");
      line.Hold(false);
      return status;
    }
    (void)Soon([&] { return !checked.Health().ok(); });
    return checked.Health();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("barrier 'alone': rank 1 waited 500ms for rank 0"));
  }
}

TEST_CASE("GlooGroup: a rank that has left is named with the call that waits for it",
          "[collectives][thread]") {
  const Meeting meeting = Meet(2, kLong);
  const double start = Seconds();
  const auto statuses = OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(auto group, GlooGroup::Create({&rendezvous, kLong}));
    ZERO_RETURN_IF_ERROR(Barrier(*group, "both"));
    if (rendezvous.rank() == 0) return Barrier(*group, "alone");
    group.reset();
    return rendezvous.Close();
  });
  CHECK(Seconds() - start < kSoon);
  CHECK_OK(statuses[1]);
  INFO(statuses[0].ToString());
  CHECK(absl::IsAborted(statuses[0]));
  CHECK_THAT(std::string(statuses[0].message()), ContainsSubstring("barrier 'alone'"));
  CHECK_THAT(std::string(statuses[0].message()), ContainsSubstring("rank 1 has left"));
}

TEST_CASE("GlooGroup: Create fails on the others when a rank ends before it",
          "[collectives][thread]") {
  Meeting meeting = Meet(3, kLong);
  const double start = Seconds();
  const auto statuses = OnEachMember(meeting, [&](Rendezvous& rendezvous) {
    if (rendezvous.rank() != 1) return GlooGroup::Create({&rendezvous, kLong}).status();
    Sleep(30);
    meeting[1]->reset();
    return absl::OkStatus();
  });
  CHECK(Seconds() - start < kSoon);
  for (int r : {0, 2}) {
    CHECK(absl::IsAborted(statuses[r]));
    CHECK_THAT(std::string(statuses[r].message()), ContainsSubstring("rank 1 is gone"));
  }
}

TEST_CASE("GlooGroup: when a stream has run an aborted call its memory may be freed",
          "[collectives][thread]") {
  // AddressSanitizer and the poison of freed memory are the judges.
  constexpr int64_t kBytes = 4 << 20;
  constexpr int64_t kPiece = 1 << 14;
  int aborted = 0;
  for (int round = 0; round < 6; ++round) {
    const auto world = MakeWorld(GroupKinds().back(), 3, kLong);
    const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
      absl::Status status;
      std::thread aborter;
      for (int call = 0; call < 40 && status.ok(); ++call) {
        ZERO_ASSIGN_OR_RETURN(DeviceBytes send, DeviceBytes::Create(rank, kBytes));
        ZERO_ASSIGN_OR_RETURN(DeviceBytes receive, DeviceBytes::Create(rank, 3 * kBytes));
        std::vector<AllGatherPiece> pieces;
        for (int64_t at = 0; at < kBytes; at += kPiece) {
          pieces.push_back({send.data() + at, receive.data() + at, kBytes, kPiece});
        }
        status = rank.group->AllGather(*rank.stream, "g", pieces);
        if (call == 1 && rank.index == round % 3) {
          aborter = std::thread([&] {
            Sleep(2 * round);
            rank.group->Abort(absl::CancelledError("enough"));
          });
        }
        const absl::Status ran = rank.stream->Synchronize();
        if (status.ok()) status = ran;
      }
      if (aborter.joinable()) aborter.join();
      return status;
    });
    for (const absl::Status& status : statuses) {
      CHECK((absl::IsCancelled(status) || absl::IsAborted(status)));
      CHECK_THAT(std::string(status.message()), ContainsSubstring("enough"));
      ++aborted;
    }
  }
  CHECK(aborted == 18);
}

}  // namespace
}  // namespace zero::test
