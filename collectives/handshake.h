// How a rank shows the hub that it belongs to the job, and the hub shows the rank.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/frame.h"
#include "collectives/rendezvous.h"

namespace zero {

inline constexpr uint64_t kRendezvousProtocol = 2;

// The version of this library that ranks compare.
std::string LibraryVersion();

// 16 bytes that nobody has seen.
std::string NewNonce();

// What a rank says of itself. Proof and version come first, so that later protocols can be told
// from strangers.
struct Join {
  std::string version;
  std::string nonce;  // answered by the hub's proof
  uint64_t rank = 0;
  uint64_t size = 0;
  std::string configuration;
  absl::Status failure;  // why the rank cannot take part
};

// Hub to newcomer.
Frame GreetingFrame(const std::string& nonce);
// The nonce. kInvalidArgument: whoever sent it is no hub, or one of another protocol.
absl::StatusOr<std::string> ReadGreeting(const Frame& frame);

// Newcomer to hub. The token itself does not travel: only an HMAC of the hub's nonce under it does.
Frame JoinFrame(const Join& join, const std::string& token, const std::string& hub_nonce);
// kPermissionDenied: the sender does not know the token. kInvalidArgument: no such message.
absl::StatusOr<Join> ReadJoin(const Frame& frame, const std::string& token,
                              const std::string& hub_nonce);

// The hub's proof for a newcomer's nonce.
std::string HubProof(const std::string& token, const std::string& nonce);

// MASTER_ADDR is 0.0.0.0 or ::.
absl::Status NotOneMachine(const RendezvousOptions& options);
// How long a rank tries to meet the others: the deadline, or less where it has only a failure to
// tell.
absl::Duration TimeToJoin(const RendezvousOptions& options);
// What to look at when a rank does not come; the end of a message.
inline constexpr const char* kHowToJoin =
    "; it must run, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, or its own output says "
    "why it does not";

// "'stage=2' against 'stage=3'": the first line that differs, of rank `left` and rank `right`.
std::string FirstDifference(const std::string& left, const std::string& right);

}  // namespace zero
