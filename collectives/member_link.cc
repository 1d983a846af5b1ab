#include "collectives/member_link.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/handshake.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr auto kFirstRetry = std::chrono::milliseconds(10);
constexpr auto kLastRetry = std::chrono::milliseconds(200);
// Rank 0 greets at once: what is silent for so long is another program.
constexpr auto kGreetingTime = std::chrono::seconds(15);

std::string Where(const RendezvousOptions& options) {
  return absl::StrCat(options.address, ":", options.port);
}

absl::Duration Left(SteadyTime until) { return absl::FromChrono(until - SteadyNow()); }

// Tries each address in turn until one answers.
absl::StatusOr<Connection> Reach(const RendezvousOptions& options, SteadyTime until) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses =
      Resolve(options.address, options.port, Left(until));
  if (!addresses.ok()) {
    return absl::Status(
        addresses.status().code(),
        absl::StrCat("rank ", options.rank, ": MASTER_ADDR: ", addresses.status().message()));
  }
  for (const SocketAddress& address : *addresses) {
    if (address.any()) return NotOneMachine(options);
  }
  auto pause = kFirstRetry;
  std::string last;
  while (true) {
    for (const SocketAddress& address : *addresses) {
      SocketOrErrno made = Connect(address, Left(until));
      if (made.error == 0) return Connection(std::move(made.socket), address.Text());
      last = ErrnoText(made.error);
    }
    const SteadyTime now = SteadyNow();
    if (now >= until) break;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, until - now));
    pause = std::min(pause * 2, kLastRetry);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", options.rank, " tried for ", absl::FormatDuration(TimeToJoin(options)),
                   " to reach rank 0 at ", Where(options), ": ", last,
                   "; rank 0 must run, on the machine that MASTER_ADDR names, with the same "
                   "MASTER_PORT"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemberLink>> MemberLink::Join(const RendezvousOptions& options) {
  const SteadyTime until = SteadyNow() + Bounded(TimeToJoin(options));
  ZERO_ASSIGN_OR_RETURN(Connection connection, Reach(options, until));
  Tune(connection.socket(), options.deadline);
  std::unique_ptr<MemberLink> link(new MemberLink(options, std::move(connection)));
  ZERO_RETURN_IF_ERROR(link->JoinUntil(until));
  return link;
}

absl::StatusOr<Frame> MemberLink::Wait(SteadyTime until) {
  while (true) {
    std::optional<Frame> frame;
    ZERO_RETURN_IF_ERROR(connection_.Next(frame));
    if (frame.has_value()) return *std::move(frame);
    if (SteadyNow() >= until) return absl::DeadlineExceededError("no answer");
    pollfd waiting{connection_.socket().fd(), POLLIN, 0};
    poll(
        &waiting, 1,
        static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(Left(until)) + 1, 1, 1000)));
    ZERO_RETURN_IF_ERROR(connection_.Receive());
  }
}

absl::Status MemberLink::JoinUntil(SteadyTime until) {
  const std::string me = absl::StrCat("rank ", options_.rank);
  const auto no_rank_0 = [&](const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat(me, " reached ", Where(options_),
                                                 ", but not rank 0 there: ", why.message(),
                                                 "; another program may use the port: choose "
                                                 "another MASTER_PORT, the same on every rank"));
  };
  const absl::StatusOr<Frame> greeting = Wait(std::min(until, SteadyNow() + kGreetingTime));
  if (!greeting.ok()) return no_rank_0(greeting.status());
  const absl::StatusOr<std::string> hub_nonce = ReadGreeting(*greeting);
  if (!hub_nonce.ok()) return no_rank_0(hub_nonce.status());

  zero::Join join;
  join.version = options_.version;
  join.nonce = NewNonce();
  join.rank = static_cast<uint64_t>(options_.rank);
  join.size = static_cast<uint64_t>(options_.size);
  join.configuration = options_.configuration;
  join.failure = options_.failure;
  connection_.Send(JoinFrame(join, options_.token, *hub_nonce));

  until += Bounded(kVerdictTime);
  std::string missing;
  while (true) {
    const absl::StatusOr<Frame> frame = Wait(until);
    if (absl::IsDeadlineExceeded(frame.status())) {
      return absl::DeadlineExceededError(
          absl::StrCat(me, " waited ", absl::FormatDuration(options_.deadline), " for ",
                       missing.empty() ? "an answer of rank 0" : "rank " + missing, " to join at ",
                       Where(options_), kHowToJoin));
    }
    if (!frame.ok()) {
      return absl::AbortedError(
          absl::StrCat(me, ": rank 0 ended while ranks were joining: ", frame.status().message()));
    }
    FrameReader reader(*frame);
    if (frame->type == FrameType::kRefused) {
      return absl::InvalidArgumentError(
          absl::StrCat(me, " was refused by rank 0 at ", Where(options_),
                       ": their tokens differ; set ZERO_JOB_TOKEN to the same on every rank, or "
                       "start them in one job"));
    }
    if (frame->type == FrameType::kFailed) return reader.Failure();
    if (frame->type != FrameType::kRoster) continue;  // a sign of life
    const std::string proof = reader.Text();
    missing = reader.Text();
    if (proof != HubProof(options_.token, join.nonce)) {
      return no_rank_0(absl::InvalidArgumentError("it does not know the job's token"));
    }
    connection_.Trust();
    if (missing.empty()) return absl::OkStatus();
  }
}

void MemberLink::Lose(const absl::Status& reason) {
  lost_ = true;
  shutdown(connection_.socket().fd(), SHUT_RDWR);  // or rank 0 would wait for it
  Deliver(FrameWriter(FrameType::kFailed).Failure(reason).Finish());
}

void MemberLink::Poll(int wake_fd, absl::Duration limit) {
  const absl::Duration interval = PingInterval(options_.deadline);
  pollfd waiting[2] = {{wake_fd, POLLIN, 0},
                       {lost_ ? -1 : connection_.socket().fd(),
                        static_cast<int16_t>(POLLIN | (connection_.pending() ? POLLOUT : 0)), 0}};
  poll(waiting, 2, static_cast<int>(absl::ToInt64Milliseconds(std::min(limit, interval))) + 1);
  if (lost_) return;
  connection_.Flush();
  if (waiting[1].revents != 0) {
    const absl::Status received = connection_.Receive();
    std::optional<Frame> frame;
    absl::Status cut = connection_.Next(frame);
    for (; cut.ok() && frame.has_value(); cut = connection_.Next(frame)) Deliver(*frame);
    if (!received.ok() || !cut.ok()) {
      return Lose(absl::AbortedError(
          absl::StrCat("rank 0 is gone: its connection to rank ", options_.rank, " ended (",
                       received.ok() ? cut.message() : received.message(), ")")));
    }
  }
  const SteadyTime now = SteadyNow();
  if (now - connection_.last_received() > Bounded(options_.deadline)) {
    return Lose(absl::DeadlineExceededError(
        absl::StrCat("rank 0 has sent nothing to rank ", options_.rank, " for ",
                     absl::FormatDuration(options_.deadline),
                     ": it is stopped, or the network between them is cut")));
  }
  if (now - connection_.last_sent() > Bounded(interval)) {
    connection_.Send(FrameWriter(FrameType::kPing).Finish());
  }
}

}  // namespace zero
