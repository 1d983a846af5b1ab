// What is said of ranks that keep a collective waiting.
#include "collectives/roll_call.h"

#include <thread>
#include <vector>

#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

using Answers = std::vector<std::optional<std::string>>;

// The fourth call.
LateCall Late(bool in_stream = true) { return {3, "barrier 'x'", absl::Seconds(2), in_stream}; }

std::string Text(const LateCall& call, int rank, const Answers& answers) {
  const absl::Status status = LateError(call, rank, answers);
  CHECK(absl::IsDeadlineExceeded(status));
  return std::string(status.message());
}

TEST_CASE("LateError: ranks that are behind are named with what they called last",
          "[collectives]") {
  const std::string there = Encode(Standing{9, 4, "barrier 'later'", "barrier 'x'"});
  const std::string behind = Encode(Standing{3, 3, "barrier 'before'", ""});
  CHECK(Text(Late(), 0, {{}, there, behind}) ==
        "barrier 'x': rank 0 waited 2s for rank 2: rank 2 last called barrier 'before'");
  CHECK(
      Text(Late(), 1, {Encode(Standing{}), {}, behind}) ==
      "barrier 'x': rank 1 waited 2s for rank 0, 2: rank 0 has called nothing, rank 2 last called "
      "barrier 'before'");
}

TEST_CASE("LateError: a rank whose stream is behind is named unless the host waits",
          "[collectives]") {
  const std::string held = Encode(Standing{4, 3, "barrier 'x'", ""});
  CHECK(Text(Late(), 0, {{}, held}) ==
        "barrier 'x': rank 0 waited 2s for rank 1: rank 1 has called it, but its stream has not "
        "come to it");
  CHECK_THAT(Text(Late(false), 0, {{}, held}), ContainsSubstring("every rank has come to it"));
}

TEST_CASE("LateError: a rank that is in another call is named with it", "[collectives]") {
  const std::string there = Encode(Standing{4, 4, "barrier 'x'", "barrier 'x'"});
  const std::string other = Encode(Standing{4, 4, "barrier 'y'", "barrier 'y'"});
  CHECK(Text(Late(), 0, {{}, other, there}) ==
        "barrier 'x': rank 0 waited 2s for rank 1: rank 1 is in barrier 'y' instead");
  CHECK_THAT(Text(Late(), 0, {{}, there, there}), ContainsSubstring("every rank has come to it"));
}

TEST_CASE("LateError: a rank that does not answer or is not in the group is named",
          "[collectives]") {
  const std::string there = Encode(Standing{4, 4, "barrier 'x'", "barrier 'x'"});
  CHECK(Text(Late(), 1, {there, {}, {}, "", "nonsense"}) ==
        "barrier 'x': rank 1 waited 2s for rank 2, 3, 4: rank 2 does not answer, rank 3 is not in "
        "the group, rank 4 does not say where it is");
}

TEST_CASE("LateError: nobody is accused where only rank 0 is known to be silent", "[collectives]") {
  CHECK(Text(Late(), 1, {{}, {}, {}}) ==
        "barrier 'x' on rank 1 did not end within 2s: another rank did not call it, or cannot be "
        "reached; rank 0, by way of which ranks ask each other, does not answer");
  // Rank 0 knows, and of two ranks it is the other.
  CHECK_THAT(Text(Late(), 0, {{}, {}, {}}), ContainsSubstring("for rank 1, 2"));
  CHECK_THAT(Text(Late(), 1, {{}, {}}), ContainsSubstring("for rank 0"));
}

TEST_CASE("Rendezvous: a question is answered by every other rank and by nobody for long",
          "[collectives][thread]") {
  Meeting meeting = Meet(3, absl::Minutes(5));
  const auto answered = [](Rendezvous& rendezvous, int64_t question) {
    int count = 0;
    for (const auto& answer : rendezvous.Answers(question)) count += answer.has_value();
    return count;
  };
  CHECK(FirstError(OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
          const int rank = rendezvous.rank();
          rendezvous.SetAnswer("a", [rank] { return "first of " + std::to_string(rank); });
          rendezvous.SetAnswer("b", [rank] { return "second of " + std::to_string(rank); });
          if (rank == 2) rendezvous.SetAnswer("b", nullptr);
          ZERO_RETURN_IF_ERROR(rendezvous.Exchange("ready", "").status());
          const int64_t a = rendezvous.Ask("a");
          const int64_t b = rendezvous.Ask("b");
          (void)Soon([&] { return answered(rendezvous, a) == 2 && answered(rendezvous, b) == 2; });
          Answers first = {"first of 0", "first of 1", "first of 2"};
          Answers second = {"second of 0", "second of 1", ""};
          first[rank].reset();
          second[rank].reset();
          if (rendezvous.Answers(a) != first || rendezvous.Answers(b) != second) {
            return absl::InternalError("wrong answers");
          }
          return rendezvous.Exchange("done", "").status();
        })) == "");
  CHECK(FirstError(CloseAll(meeting)) == "");
}

TEST_CASE("RollCall: it is over when the time has passed or the job has failed",
          "[collectives][thread]") {
  HeldLine line;
  Meeting meeting = Meet(2, absl::Minutes(5), [&](RendezvousOptions& o) { line.Join(o, 1); });
  line.Hold(true);  // rank 1 hears, and is not heard
  Rendezvous& rendezvous = **meeting[0];
  const double start = Seconds();
  const RollCall roll(&rendezvous, "x", {3, "barrier 'x'", absl::Seconds(1), true});
  CHECK(!roll.Over());
  CHECK(Soon([&] { return roll.Over(); }));
  CHECK(Seconds() - start >= 0.5);
  CHECK_THAT(std::string(roll.Verdict().message()), ContainsSubstring("rank 1 does not answer"));
  const RollCall long_one(&rendezvous, "x", {3, "barrier 'x'", absl::Minutes(9), true});
  CHECK(!long_one.Over());
  rendezvous.Abort(absl::UnavailableError("the trainer gave up"));
  CHECK(long_one.Over());
  line.Hold(false);
}

}  // namespace
}  // namespace zero::test
