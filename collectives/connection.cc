#include "collectives/connection.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "device/operation.h"

namespace zero {

std::chrono::nanoseconds Bounded(absl::Duration duration) {
  return absl::ToChronoNanoseconds(std::clamp(duration, absl::ZeroDuration(), kLongestWait));
}

absl::Status Connection::Receive() {
  char piece[8192];
  // A peer that sends faster than this reads must not keep the others waiting.
  for (int round = 0; round < 64 && !incoming_.full(); ++round) {
    int error = 0;
    const size_t got = ReadSome(socket_, piece, sizeof(piece), error);
    if (error != 0) return absl::UnavailableError(ErrnoText(error));
    if (got == 0) break;
    last_received_ = SteadyNow();
    incoming_.Append(piece, got);
    if (got < sizeof(piece)) break;
  }
  return absl::OkStatus();
}

void Connection::Send(const Frame& frame) {
  if (broken_) return;
  outgoing_ += Encode(frame);
  last_sent_ = SteadyNow();
  Flush();
}

void Connection::Flush() {
  int error = 0;
  while (!outgoing_.empty() && !broken_) {
    const size_t sent = WriteSome(socket_, outgoing_.data(), outgoing_.size(), error);
    outgoing_.erase(0, sent);
    broken_ = error != 0;
    if (sent == 0) break;
  }
  if (broken_) outgoing_.clear();
}

void Connection::Finish(absl::Duration limit) {
  const SteadyTime until = SteadyNow() + Bounded(limit);
  Flush();
  shutdown(socket_.fd(), SHUT_WR);
  char rest[4096];
  while (SteadyNow() < until) {
    pollfd waiting{socket_.fd(), POLLIN, 0};
    poll(&waiting, 1, 10);
    int error = 0;
    if (waiting.revents != 0) ReadSome(socket_, rest, sizeof(rest), error);
    if (error != 0) return;
  }
}

}  // namespace zero
