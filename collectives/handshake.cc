#include "collectives/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collectives/sha256.h"

namespace zero {
namespace {

constexpr const char* kMagic = "zero-rendezvous";
constexpr absl::Duration kTimeToDecline = absl::Seconds(5);

// Every byte is looked at, whatever the first ones are.
bool Equal(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

std::string JoinProof(const std::string& token, const std::string& hub_nonce) {
  return HmacSha256(token, absl::StrCat("join ", hub_nonce));
}

}  // namespace

std::string LibraryVersion() { return ZERO_VERSION; }

std::string NewNonce() {
  std::string nonce(16, '\0');
  size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return nonce;
}

Frame GreetingFrame(const std::string& nonce) {
  return FrameWriter(FrameType::kGreeting)
      .Text(kMagic)
      .Number(kRendezvousProtocol)
      .Text(nonce)
      .Finish();
}

absl::StatusOr<std::string> ReadGreeting(const Frame& frame) {
  FrameReader reader(frame);
  const std::string magic = reader.Text();
  const uint64_t protocol = reader.Number();
  const std::string nonce = reader.Text();
  if (frame.type != FrameType::kGreeting || !reader.ok() || magic != kMagic) {
    return absl::InvalidArgumentError("it does not greet as rank 0 does");
  }
  if (protocol != kRendezvousProtocol) {
    return absl::InvalidArgumentError(absl::StrCat("rank 0 speaks protocol ", protocol,
                                                   ", this rank ", kRendezvousProtocol,
                                                   ": use the same program on every rank"));
  }
  return nonce;
}

Frame JoinFrame(const Join& join, const std::string& token, const std::string& hub_nonce) {
  return FrameWriter(FrameType::kJoin)
      .Text(kMagic)
      .Text(JoinProof(token, hub_nonce))
      .Number(kRendezvousProtocol)
      .Text(join.version)
      .Text(join.nonce)
      .Number(join.rank)
      .Number(join.size)
      .Text(join.configuration)
      .Failure(join.failure)
      .Finish();
}

absl::StatusOr<Join> ReadJoin(const Frame& frame, const std::string& token,
                              const std::string& hub_nonce) {
  FrameReader reader(frame);
  const std::string magic = reader.Text();
  const std::string proof = reader.Text();
  if (frame.type != FrameType::kJoin || !reader.ok() || magic != kMagic) {
    return absl::InvalidArgumentError("no rank of this library");
  }
  if (!Equal(proof, JoinProof(token, hub_nonce))) {
    return absl::PermissionDeniedError("another token");
  }
  const uint64_t protocol = reader.Number();
  Join join;
  join.version = reader.Text();
  if (protocol != kRendezvousProtocol) {
    join.version = absl::StrCat(join.version, ", protocol ", protocol);
    return join;
  }
  join.nonce = reader.Text();
  join.rank = reader.Number();
  join.size = reader.Number();
  join.configuration = reader.Text();
  join.failure = reader.StatusOf();
  if (!reader.ok()) return absl::InvalidArgumentError("a message that is cut short");
  return join;
}

std::string HubProof(const std::string& token, const std::string& nonce) {
  return HmacSha256(token, absl::StrCat("hub ", nonce));
}

absl::Status NotOneMachine(const RendezvousOptions& options) {
  return absl::InvalidArgumentError(
      absl::StrCat("MASTER_ADDR is '", options.address,
                   "', which stands for all addresses of a machine; it must be the one of rank 0's "
                   "machine that the others can reach"));
}

absl::Duration TimeToJoin(const RendezvousOptions& options) {
  return options.failure.ok() ? options.deadline : std::min(options.deadline, kTimeToDecline);
}

std::string FirstDifference(const std::string& left, const std::string& right) {
  const std::vector<std::string> l = absl::StrSplit(left, '\n');
  const std::vector<std::string> r = absl::StrSplit(right, '\n');
  const std::string none = "nothing";
  for (size_t i = 0; i < l.size() || i < r.size(); ++i) {
    const std::string a = i < l.size() ? l[i] : none;
    const std::string b = i < r.size() ? r[i] : none;
    if (a != b) return absl::StrCat("'", a, "' against '", b, "'");
  }
  return "";
}

}  // namespace zero
