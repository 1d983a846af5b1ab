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
