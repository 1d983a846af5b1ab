// Which ranks keep a collective waiting: found by asking all of them where they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/calls_in_flight.h"
#include "collectives/connection.h"
#include "collectives/control_channel.h"

namespace zero {

// What a rank answers.
std::string Encode(const Standing& standing);
// Nothing if `text` is not what Encode made.
std::optional<Standing> DecodeStanding(const std::string& text);

// kDeadlineExceeded: `call` of `rank` was late, and why, from what the ranks have answered (its own
// is not looked at):
//   "all-gather 'x' of 8 bytes: rank 0 waited 10m for rank 1, 2: rank 1 last called barrier 'y',
//   rank 2 does not answer"
// A rank that has come to another call is named with that. Answers come by way of rank 0: where it
// is silent, the others may be well, and are not accused.
absl::Status LateError(const LateCall& call, int rank,
                       absl::Span<const std::optional<std::string>> answers);

class RollCall {
 public:
  // Asks. Every rank answers under `subject`.
  RollCall(ControlChannel* control, const std::string& subject, const LateCall& call);

  // All have answered, or it has taken too long: a quarter of the call's limit, at least half a
  // second and at most kVerdictTime. Also when the channel has failed. Never blocks.
  bool Over() const;
  // Of what has been answered so far.
  absl::Status Verdict() const;

 private:
  ControlChannel* const control_;
  const LateCall call_;
  const SteadyTime until_;
  const int64_t question_;
};

}  // namespace zero
