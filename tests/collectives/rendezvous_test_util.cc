#include "tests/collectives/rendezvous_test_util.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace zero::test {

int FreePort() {
  // Not from the range that the system itself takes ports from: another program's connection could
  // have it before the caller does.
  constexpr int kFirst = 10000;
  constexpr int kPorts = 9000;
  static std::atomic<int> next{static_cast<int>(getpid()) * 37};
  while (true) {
    const int port = kFirst + next++ % kPorts;
    SocketAddress address;
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in->sin_port = htons(static_cast<uint16_t>(port));
    address.length = sizeof(*in);
    if (Listen(address).error == 0) return port;
  }
}

Meeting Meet(int size, absl::Duration deadline,
             const std::function<void(RendezvousOptions&)>& change,
             const std::vector<int>& absent) {
  RendezvousOptions options;
  options.size = size;
  options.port = FreePort();
  options.deadline = deadline;
  Meeting meeting;
  for (int r = 0; r < size; ++r) meeting.emplace_back(absl::UnknownError("not started"));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    if (std::find(absent.begin(), absent.end(), r) != absent.end()) continue;
    threads.emplace_back([&, r] {
      RendezvousOptions own = options;
      own.rank = r;
      if (change) change(own);
      meeting[r] = Rendezvous::Create(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return meeting;
}

namespace {

SocketAddress LoopbackAt(int port) { return Resolve("127.0.0.1", port, absl::Minutes(1))->front(); }

// All that has arrived at one end goes to the other. False at the end of the stream.
bool Pass(const Socket& from, const Socket& to) {
  char piece[4096];
  int error = 0;
  const size_t got = ReadSome(from, piece, sizeof(piece), error);
  for (size_t at = 0; at < got && error == 0;) {
    at += WriteSome(to, piece + at, got - at, error);
  }
  return error == 0;
}

}  // namespace

HeldLine::HeldLine() : outer_port_(FreePort()), inner_port_(FreePort()) {
  listener_ = Listen(LoopbackAt(outer_port_)).socket;
  thread_ = std::thread([this] { Serve(); });
}

HeldLine::~HeldLine() {
  done_ = true;
  thread_.join();
}

void HeldLine::Join(RendezvousOptions& options, int rank) const {
  options.port = options.rank == rank ? outer_port_ : inner_port_;
}

void HeldLine::Serve() {
  Socket outer;
  Socket inner;
  while (!done_ && !inner.valid()) {
    SocketAddress peer;
    if (!outer.valid()) outer = Accept(listener_, peer).socket;
    if (outer.valid()) inner = Connect(LoopbackAt(inner_port_), absl::Seconds(1)).socket;
    Sleep(1);
  }
  while (!done_) {
    if (!held_ && !Pass(outer, inner)) break;
    if (!Pass(inner, outer)) break;
    Sleep(1);
  }
}

std::vector<absl::Status> OnEachMember(const Meeting& meeting,
                                       const std::function<absl::Status(Rendezvous&)>& body) {
  std::vector<absl::Status> statuses(meeting.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < meeting.size(); ++r) {
    threads.emplace_back(
        [&, r] { statuses[r] = meeting[r].ok() ? body(**meeting[r]) : meeting[r].status(); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<absl::Status> CloseAll(Meeting& meeting) {
  const auto statuses =
      OnEachMember(meeting, [](Rendezvous& rendezvous) { return rendezvous.Close(); });
  // Rank 0 last: its process holds the others' connections.
  while (!meeting.empty()) meeting.pop_back();
  return statuses;
}

std::string FirstError(const std::vector<absl::Status>& statuses) {
  for (size_t r = 0; r < statuses.size(); ++r) {
    if (!statuses[r].ok()) return absl::StrCat("rank ", r, ": ", statuses[r].ToString());
  }
  return "";
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

bool Soon(const std::function<bool()>& condition) {
  for (int round = 0; round < 4000; ++round) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace zero::test
