#include "collectives/hub_link.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr size_t kMostStrangers = 64;  // besides as many as there are ranks
constexpr auto kStrangersTime = std::chrono::seconds(10);
constexpr auto kTellingTime = std::chrono::seconds(5);
constexpr auto kRosterTime = std::chrono::milliseconds(100);
constexpr auto kShortagePause = std::chrono::milliseconds(10);

bool IsNumber(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

// The system has no room for one more connection, and the one that waits stays.
bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

std::vector<SocketAddress> OpenFirst(std::vector<SocketAddress> addresses) {
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const SocketAddress& address) { return !address.loopback(); });
  return addresses;
}

std::string HiddenByName(const std::string& name, const SocketAddress& address) {
  if (!address.loopback() || name == "localhost" || IsNumber(name)) return "";
  return absl::StrCat("MASTER_ADDR '", name, "' is ", address.Host(),
                      " on rank 0's machine (see /etc/hosts); other machines cannot reach it");
}

absl::Duration PingInterval(absl::Duration deadline) {
  return std::clamp(deadline / 4, absl::Milliseconds(20), absl::Seconds(5));
}

HubLink::HubLink(const RendezvousOptions& options)
    : options_(options),
      members_(static_cast<size_t>(options.size)),
      hub_(options.size, options.deadline,
           [this](int rank, const Frame& frame) { Send(rank, frame); }) {}

absl::StatusOr<std::unique_ptr<HubLink>> HubLink::Gather(const RendezvousOptions& options) {
  std::unique_ptr<HubLink> link(new HubLink(options));
  link->local_address_ = options.address;
  if (options.size > 1) {
    const SteadyTime until = SteadyNow() + Bounded(TimeToJoin(options));
    link->failure_ =
        absl::Status(options.failure.code(), absl::StrCat("rank 0: ", options.failure.message()));
    link->failed_at_ = SteadyNow();
    ZERO_RETURN_IF_ERROR(link->StartListening(until));
    const absl::Status gathered = link->GatherUntil(until);
    if (!gathered.ok()) {
      link->hub_.Fail(gathered);
      link->Finish();
      return gathered;
    }
  }
  link->gathering_ = false;
  link->listener_ = Socket();
  link->strangers_.clear();
  return link;
}

absl::Status HubLink::StartListening(SteadyTime until) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses =
      Resolve(options_.address, options_.port, absl::FromChrono(until - SteadyNow()));
  if (!addresses.ok()) {
    return absl::Status(addresses.status().code(),
                        absl::StrCat("rank 0: MASTER_ADDR: ", addresses.status().message()));
  }
  for (const SocketAddress& address : *addresses) {
    if (address.any()) return NotOneMachine(options_);
  }
  int error = 0;
  for (const SocketAddress& address : OpenFirst(*addresses)) {
    SocketOrErrno made = zero::Listen(address);
    if (made.error == 0) {
      listener_ = std::move(made.socket);
      local_address_ = address.Host();
      hidden_ = HiddenByName(options_.address, address);
      return absl::OkStatus();
    }
    error = made.error;
    if (error == EADDRINUSE) break;
  }
  const std::string where = absl::StrCat("port ", options_.port, " of ", options_.address);
  if (error == EADDRINUSE) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank 0 cannot listen on ", where,
                     ": it is taken, by another program or another rank 0; choose another "
                     "MASTER_PORT, the same on every rank"));
  }
  if (error == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank 0 cannot listen on ", where,
                     ": this machine does not have that "
                     "address; MASTER_ADDR must be one of the machine that rank 0 runs on"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("rank 0 cannot listen on ", where, ": ", ErrnoText(error)));
}

absl::Status HubLink::GatherUntil(SteadyTime until) {
  while (!failure_.ok() || !Missing().empty()) {
    if (!failure_.ok() && AllCanBeTold()) return failure_;
    if (SteadyNow() >= until) {
      if (!failure_.ok()) return failure_;
      std::string text =
          absl::StrCat("rank 0 waited ", absl::FormatDuration(options_.deadline), " for rank ",
                       Missing(), " to join at ", options_.address, ":", options_.port, kHowToJoin);
      if (!hidden_.empty()) absl::StrAppend(&text, "; ", hidden_);
      if (refused_ > 0) {
        absl::StrAppend(&text, "; ", refused_, " connections were refused, the last from ",
                        last_refused_);
      }
      return absl::DeadlineExceededError(text);
    }
    std::vector<pollfd> waiting = {{listener_.fd(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_) {
      waiting.push_back({stranger.connection.socket().fd(), POLLIN, 0});
    }
    for (const Member& member : members_) {
      if (member.connection.has_value()) {
        waiting.push_back({member.connection->socket().fd(), POLLIN, 0});
      }
    }
    poll(waiting.data(), waiting.size(), 20);
    Greet();
    for (auto at = strangers_.begin(); at != strangers_.end();) {
      at = Hear(*at) ? std::next(at) : strangers_.erase(at);
    }
    for (int rank = 1; rank < options_.size; ++rank) {
      Member& member = members_[static_cast<size_t>(rank)];
      // A rank that ends before all are here may come again.
      if (member.connection.has_value() && !Listen(rank)) {
        member.connection.reset();
        roster_changed_ = true;
      }
    }
    SendRosters();
  }
  return absl::OkStatus();
}

void HubLink::Greet() {
  while (true) {
    SocketAddress peer;
    SocketOrErrno made = Accept(listener_, peer);
    if (IsShortage(made.error)) std::this_thread::sleep_for(kShortagePause);
    if (made.error != 0) return;
    if (strangers_.size() == kMostStrangers + members_.size()) {
      Refuse(strangers_.front(), "too many at a time");
      strangers_.pop_front();
    }
    Tune(made.socket, options_.deadline);
    strangers_.push_back({Connection(std::move(made.socket), peer.Text()), NewNonce()});
    strangers_.back().connection.Send(GreetingFrame(strangers_.back().nonce));
  }
}

void HubLink::Refuse(Stranger& stranger, const std::string& why) {
  ++refused_;
  last_refused_ = absl::StrCat(stranger.connection.peer(), " (", why, ")");
  // Why is nobody's business who does not belong to the job.
  stranger.connection.Send(FrameWriter(FrameType::kRefused).Finish());
}

bool HubLink::AllCanBeTold() const {
  size_t here = turned_away_.size();
  for (const Member& member : members_) here += member.connection.has_value() ? 1 : 0;
  return here + 1 >= members_.size() || SteadyNow() - failed_at_ > kTellingTime;
}

bool HubLink::Hear(Stranger& stranger) {
  const absl::Status received = stranger.connection.Receive();
  std::optional<Frame> frame;
  const absl::Status cut = stranger.connection.Next(frame);
  if (!cut.ok()) {
    Refuse(stranger, "it sent something else than a rank does");
    return false;
  }
  if (!frame.has_value()) {
    if (!received.ok()) return false;
    if (SteadyNow() - stranger.since < kStrangersTime) return true;
    Refuse(stranger, "it did not say who it is");
    return false;
  }
  const absl::StatusOr<Join> join = ReadJoin(*frame, options_.token, stranger.nonce);
  if (!join.ok()) {
    Refuse(stranger, absl::IsPermissionDenied(join.status())
                         ? "it has another token: ZERO_JOB_TOKEN must be the same on every rank"
                         : "it sent something else than a rank does");
    return false;
  }
  const absl::Status admitted = Admit(stranger, *join);
  if (admitted.ok()) return false;
  if (failure_.ok()) {
    failure_ = admitted;
    failed_at_ = SteadyNow();
  }
  turned_away_.push_back(std::move(stranger.connection));
  return false;
}

absl::Status HubLink::Admit(Stranger& stranger, const Join& join) {
  if (join.version != options_.version) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the rank at ", stranger.connection.peer(), " runs version ", join.version,
        ", rank 0 runs version ", options_.version, "; start the same program on every rank"));
  }
  const std::string who = absl::StrCat("rank ", join.rank);
  if (join.size != static_cast<uint64_t>(options_.size)) {
    return absl::InvalidArgumentError(absl::StrCat(who, " was started for ", join.size,
                                                   " ranks, rank 0 for ", options_.size,
                                                   "; WORLD_SIZE must be the same on every rank"));
  }
  if (join.rank == 0 || join.rank >= join.size) {
    return absl::InvalidArgumentError(absl::StrCat("a process at ", stranger.connection.peer(),
                                                   " joins as ", who, "; it must be from 1 to ",
                                                   options_.size - 1));
  }
  if (!join.failure.ok()) {
    return absl::Status(join.failure.code(), absl::StrCat(who, ": ", join.failure.message()));
  }
  Member& member = members_[join.rank];
  if (member.connection.has_value() && Listen(static_cast<int>(join.rank))) {
    return absl::InvalidArgumentError(
        absl::StrCat("two processes say that they are ", who, ": ", member.connection->peer(),
                     " and ", stranger.connection.peer(), "; each needs a RANK of its own"));
  }
  const std::string difference = FirstDifference(options_.configuration, join.configuration);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("rank 0 and ", who,
                                                   " are configured differently: ", difference,
                                                   "; they must be the same"));
  }
  member.connection.emplace(std::move(stranger.connection));
  member.connection->Trust();
  member.nonce = join.nonce;
  roster_changed_ = true;
  return absl::OkStatus();
}

std::string HubLink::Missing() const {
  std::vector<int> missing;
  for (int rank = 1; rank < options_.size; ++rank) {
    if (!members_[static_cast<size_t>(rank)].connection.has_value()) missing.push_back(rank);
  }
  return absl::StrJoin(missing, ", ");
}

void HubLink::SendRosters() {
  const std::string missing = Missing();
  // All may be here, and the job has failed.
  if (!failure_.ok()) return;
  // With many ranks one message to each for each that comes would be too many.
  const SteadyTime now = SteadyNow();
  if (!roster_changed_ || (!missing.empty() && now - roster_sent_ < kRosterTime)) return;
  roster_changed_ = false;
  roster_sent_ = now;
  for (Member& member : members_) {
    if (!member.connection.has_value()) continue;
    member.connection->Send(FrameWriter(FrameType::kRoster)
                                .Text(HubProof(options_.token, member.nonce))
                                .Text(missing)
                                .Finish());
  }
}

bool HubLink::Listen(int rank) {
  Connection& connection = *members_[static_cast<size_t>(rank)].connection;
  connection.Flush();
  const absl::Status received = connection.Receive();
  std::optional<Frame> frame;
  absl::Status cut = connection.Next(frame);
  for (; cut.ok() && frame.has_value(); cut = connection.Next(frame)) {
    if (!gathering_) hub_.OnFrame(rank, *frame);
  }
  if (received.ok() && cut.ok()) return true;
  if (!gathering_) {
    hub_.OnClosed(rank, std::string(received.ok() ? cut.message() : received.message()));
  }
  return false;
}

void HubLink::Send(int rank, const Frame& frame) {
  if (rank == 0) return Deliver(frame);
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.connection.has_value()) member.connection->Send(frame);
}

void HubLink::Poll(int wake_fd, absl::Duration limit) {
  const absl::Duration interval = PingInterval(options_.deadline);
  std::vector<pollfd> waiting = {{wake_fd, POLLIN, 0}};
  for (const Member& member : members_) {
    if (!member.connection.has_value()) continue;
    const bool pending = member.connection->pending();
    waiting.push_back({member.connection->socket().fd(),
                       static_cast<int16_t>(POLLIN | (pending ? POLLOUT : 0)), 0});
  }
  poll(waiting.data(), waiting.size(),
       static_cast<int>(absl::ToInt64Milliseconds(std::min(limit, interval))) + 1);
  const SteadyTime now = SteadyNow();
  for (int rank = 1; rank < options_.size; ++rank) {
    std::optional<Connection>& connection = members_[static_cast<size_t>(rank)].connection;
    if (!connection.has_value()) continue;
    if (!Listen(rank)) {
      connection.reset();
      continue;
    }
    if (!hub_.left(rank) && now > connection->last_received() + Bounded(options_.deadline)) {
      hub_.Fail(absl::DeadlineExceededError(
          absl::StrCat("rank ", rank, " has sent nothing to rank 0 for ",
                       absl::FormatDuration(options_.deadline),
                       ": it is stopped, or the network between them is cut")));
    }
    if (now - connection->last_sent() > Bounded(interval)) {
      connection->Send(FrameWriter(FrameType::kPing).Finish());
    }
  }
  hub_.OnTick();
}

void HubLink::Finish() {
  std::vector<Connection*> open;
  for (Member& member : members_) {
    if (member.connection.has_value()) open.push_back(&*member.connection);
  }
  for (Connection& connection : turned_away_) {
    connection.Send(FrameWriter(FrameType::kFailed).Failure(failure_).Finish());
    open.push_back(&connection);
  }
  for (Connection* connection : open) connection->Flush();
  const SteadyTime until = SteadyNow() + std::chrono::seconds(1);
  for (Connection* connection : open) connection->Finish(absl::FromChrono(until - SteadyNow()));
}

}  // namespace zero
