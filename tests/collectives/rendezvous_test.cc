// Ranks that meet, exchange, fail and leave. Faults while they meet are in
// rendezvous_fault_test.cc.
#include "collectives/rendezvous.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/connection.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

const absl::Duration kLong = absl::Minutes(5);

TEST_CASE("Rendezvous: every rank gets every rank's value in rank order", "[collectives][thread]") {
  for (int size : {1, 2, 3, 5}) {
    CAPTURE(size);
    Meeting meeting = Meet(size, kLong, [](RendezvousOptions& o) {
      o.token = "secret";
      o.configuration = "stage=2\nranks=3";
    });
    CHECK(FirstError(OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
            if (rendezvous.size() != size || rendezvous.local_address() != "127.0.0.1") {
              return absl::InternalError("wrong size or address");
            }
            for (int round = 0; round < 20; ++round) {
              const std::string own(1000 * round, static_cast<char>('a' + rendezvous.rank()));
              ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> values,
                                    rendezvous.Exchange(absl::StrCat("round ", round), own));
              for (int q = 0; q < size; ++q) {
                if (values[q] != std::string(1000 * round, static_cast<char>('a' + q))) {
                  return absl::InternalError("wrong value");
                }
              }
            }
            return absl::OkStatus();
          })) == "");
    CHECK(FirstError(CloseAll(meeting)) == "");
  }
}

TEST_CASE("Rendezvous: ranks meet over IPv6", "[collectives][thread]") {
  Meeting meeting = Meet(2, kLong, [](RendezvousOptions& o) { o.address = "::1"; });
  CHECK(FirstError(OnEachMember(meeting, [](Rendezvous& rendezvous) {
          if (rendezvous.local_address() != "::1") return absl::InternalError("wrong address");
          return rendezvous.Exchange("x", "").status();
        })) == "");
  CHECK(FirstError(CloseAll(meeting)) == "");
}

TEST_CASE("Rendezvous: ranks that exchange under other names are both named",
          "[collectives][thread]") {
  const Meeting meeting = Meet(3, kLong);
  const auto statuses = OnEachMember(meeting, [](Rendezvous& rendezvous) {
    return rendezvous.Exchange(rendezvous.rank() == 1 ? "plan" : "id", "x").status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("rank 1 exchanges 'plan'"));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("exchanges 'id'"));
  }
}

TEST_CASE("Rendezvous: an exchange names the ranks that do not come by the deadline",
          "[collectives][thread]") {
  const Meeting meeting = Meet(3, absl::Milliseconds(700));
  const double start = Seconds();
  const auto statuses = OnEachMember(meeting, [](Rendezvous& rendezvous) {
    return rendezvous.rank() == 1 ? rendezvous.Exchange("id", "x").status() : absl::OkStatus();
  });
  CHECK(Seconds() - start >= 0.7);
  CHECK(Seconds() - start < 20);
  CHECK(absl::IsDeadlineExceeded(statuses[1]));
  CHECK_THAT(std::string(statuses[1].message()),
             ContainsSubstring("exchange 'id': rank 1 waited 700ms for rank 0, 2"));
}

TEST_CASE("Rendezvous: an abort reaches every rank with code and words and the first one stays",
          "[collectives][thread]") {
  const Meeting meeting = Meet(4, kLong);
  std::atomic<int> called{0};
  std::vector<int64_t> ids;
  for (const auto& rendezvous : meeting) {
    ids.push_back((*rendezvous)->OnFailure([&](const absl::Status& status) {
      if (status == absl::DataLossError("bad sample")) ++called;
    }));
  }
  (*meeting[3])->RemoveCallback(ids[3]);
  (*meeting[2])->Abort(absl::DataLossError("bad sample"));
  CHECK((*meeting[2])->Health() == absl::DataLossError("bad sample"));
  (*meeting[1])->Abort(absl::UnavailableError("later"));
  const auto statuses = OnEachMember(
      meeting, [](Rendezvous& rendezvous) { return rendezvous.Exchange("never", "").status(); });
  for (const absl::Status& status : statuses) CHECK(status == absl::DataLossError("bad sample"));
  CHECK(Soon([&] { return called == 3; }));
  int late = 0;
  (*meeting[0])->OnFailure([&](const absl::Status&) { ++late; });
  CHECK(late == 1);
}

TEST_CASE("Rendezvous: the others hear of a failure before the callbacks of rank 0 are done",
          "[collectives][thread]") {
  const Meeting meeting = Meet(3, kLong);
  std::atomic<int> heard{-1};
  (*meeting[0])->OnFailure([&](const absl::Status&) {
    heard = Soon([&] { return !(*meeting[1])->Health().ok(); }) ? 1 : 0;
  });
  (*meeting[2])->Abort(absl::DataLossError("bad sample"));
  CHECK(Soon([&] { return heard >= 0; }));
  CHECK(heard == 1);
}

TEST_CASE("Rendezvous: an exchange for each gives a rank what all have for it and no more",
          "[collectives][thread]") {
  // All values together are longer than a message may be.
  constexpr int kRanks = 4;
  constexpr size_t kBytes = Connection::kMemberLimit / (2 * kRanks);
  static_assert(kRanks * kRanks * kBytes > Connection::kMemberLimit);
  const auto value = [](int from, int to) {
    return std::string(kBytes + static_cast<size_t>(from), static_cast<char>('a' + from)) +
           absl::StrCat("to ", to);
  };
  Meeting meeting = Meet(kRanks, kLong);
  CHECK(FirstError(OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
          std::vector<std::string> own;
          for (int to = 0; to < kRanks; ++to) own.push_back(value(rendezvous.rank(), to));
          ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> got,
                                rendezvous.ExchangeEach("each", own));
          for (int from = 0; from < kRanks; ++from) {
            if (got[from] != value(from, rendezvous.rank())) {
              return absl::InternalError(absl::StrCat("wrong value of rank ", from));
            }
          }
          return rendezvous.Exchange("all", "x").status();
        })) == "");
  const absl::Status few = (*meeting[1])->ExchangeEach("few", {"1", "2"}).status();
  CHECK(absl::IsInvalidArgument(few));
  CHECK_THAT(std::string(few.message()),
             ContainsSubstring("'few': rank 1 has 2 values for 4 ranks"));
  CHECK(FirstError(CloseAll(meeting)) == "");
}

TEST_CASE("Rendezvous: a rank that ends without leaving is named on the others at once",
          "[collectives][thread]") {
  for (int gone : {0, 2}) {
    CAPTURE(gone);
    Meeting meeting = Meet(3, kLong);
    const double start = Seconds();
    const auto statuses = OnEachMember(meeting, [&](Rendezvous& rendezvous) {
      if (rendezvous.rank() != gone) return rendezvous.Exchange("wait", "").status();
      Sleep(50);
      meeting[gone]->reset();
      return absl::OkStatus();
    });
    CHECK(Seconds() - start < 20);
    for (int r = 0; r < 3; ++r) {
      if (r == gone) continue;
      INFO(statuses[r].ToString());
      CHECK(absl::IsAborted(statuses[r]));
      CHECK_THAT(std::string(statuses[r].message()),
                 ContainsSubstring(absl::StrCat("rank ", gone, " is gone")));
    }
  }
}

TEST_CASE("Rendezvous: a rank that leaves is no failure and is missed by exchanges only",
          "[collectives][thread]") {
  Meeting meeting = Meet(3, kLong);
  CHECK_OK((*meeting[1])->Close());
  meeting[1]->reset();
  for (int r : {0, 2}) {
    CHECK(Soon([&] { return (*meeting[r])->HasLeft(1); }));
    CHECK_FALSE((*meeting[r])->HasLeft(0));
    CHECK_OK((*meeting[r])->Health());
  }
  const absl::Status status = (*meeting[2])->Exchange("late", "").status();
  CHECK(absl::IsAborted(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("rank 1 has left"));
}

TEST_CASE("Rendezvous: calls that differ are named with both ranks and nobody waits",
          "[collectives][thread]") {
  const Meeting meeting = Meet(3, kLong);
  for (int r = 0; r < 3; ++r) (*meeting[r])->Agree(0, "barrier 'a'");
  (*meeting[2])->Agree(1, "barrier 'b'");
  // Rank 0 runs ahead, then says something else than rank 2 did.
  (*meeting[0])->Agree(2, "barrier 'c'");
  (*meeting[0])->Agree(1, "all-gather 'b' of 4 bytes");
  for (int r = 0; r < 3; ++r) {
    CHECK(Soon([&] { return !(*meeting[r])->Health().ok(); }));
    const absl::Status status = (*meeting[r])->Health();
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("collective 1: "));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("rank 2 called barrier 'b'"));
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("rank 0 called all-gather 'b' of 4 bytes"));
  }
}

}  // namespace
}  // namespace zero::test
