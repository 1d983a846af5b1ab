// What goes wrong while ranks meet: each fault has a message of its own, within the deadline.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/connection.h"
#include "collectives/handshake.h"
#include "collectives/hub_link.h"
#include "tests/catch.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

constexpr double kSoon = 20;  // seconds; far below the deadline that must not be waited for
const absl::Duration kLong = absl::Minutes(5);
const absl::Duration kShort = absl::Milliseconds(700);

std::string MessageOf(const Meeting& meeting, int rank) {
  return std::string(meeting[rank].status().message());
}

SocketAddress Loopback(int port) { return Resolve("127.0.0.1", port, kLong)->front(); }

TEST_CASE("Meeting: a rank that comes late joins", "[collectives][thread]") {
  for (int late : {0, 1}) {
    CAPTURE(late);
    Meeting meeting = Meet(3, kLong, [&](RendezvousOptions& o) {
      if (o.rank == late) Sleep(300);
    });
    CHECK(FirstError(CloseAll(meeting)) == "");
  }
}

TEST_CASE("Meeting: a port that is taken is named at once and so is another program on it",
          "[collectives][thread]") {
  const int port = FreePort();
  const SocketOrErrno other = Listen(Loopback(port));
  REQUIRE(other.error == 0);
  // The other program says something when somebody connects.
  std::atomic<bool> done{false};
  std::thread program([&] {
    while (!done) {
      SocketAddress peer;
      const SocketOrErrno made = Accept(other.socket, peer);
      int error = 0;
      if (made.error == 0) WriteSome(made.socket, "SSH-2.0-OpenSSH_9.2\r\n", 21, error);
      if (made.error == 0) Sleep(100);
      Sleep(1);
    }
  });
  const double start = Seconds();
  const Meeting meeting = Meet(2, kLong, [&](RendezvousOptions& o) { o.port = port; });
  done = true;
  program.join();
  CHECK(Seconds() - start < kSoon);
  CHECK(absl::IsInvalidArgument(meeting[0].status()));
  CHECK_THAT(MessageOf(meeting, 0),
             ContainsSubstring(absl::StrCat("port ", port, " of 127.0.0.1")));
  CHECK_THAT(MessageOf(meeting, 0), ContainsSubstring("taken"));
  CHECK_THAT(MessageOf(meeting, 0), ContainsSubstring("MASTER_PORT"));
  CHECK(absl::IsInvalidArgument(meeting[1].status()));
  CHECK_THAT(MessageOf(meeting, 1), ContainsSubstring("not rank 0"));
}

TEST_CASE("Meeting: a host that is unknown is named on every rank", "[collectives][thread]") {
  const double start = Seconds();
  const Meeting meeting = Meet(2, kLong, [&](RendezvousOptions& o) {
    o.address = "no-such-host.invalid";
    o.token = "x";
  });
  CHECK(Seconds() - start < 60);
  for (int r = 0; r < 2; ++r) {
    CHECK(absl::IsInvalidArgument(meeting[r].status()));
    CHECK_THAT(MessageOf(meeting, r),
               ContainsSubstring("MASTER_ADDR") && ContainsSubstring("'no-such-host.invalid'"));
  }
}

TEST_CASE("Meeting: an address of another machine is named on rank 0", "[collectives][thread]") {
  // 192.0.2.0/24 is kept for documentation, but this machine may have one of its addresses.
  const Meeting meeting = Meet(2, kLong,
                               [&](RendezvousOptions& o) {
                                 o.address = "198.51.100.77";
                                 o.token = "x";
                               },
                               {1});
  CHECK(absl::IsInvalidArgument(meeting[0].status()));
  CHECK_THAT(MessageOf(meeting, 0), ContainsSubstring("does not have that address"));
}

SocketAddress Number(const std::string& host) { return Resolve(host, 1, kLong)->front(); }

TEST_CASE("Meeting: rank 0 listens where other machines reach it if its name says so",
          "[collectives]") {
  const auto order = [](const std::vector<std::string>& hosts) {
    std::vector<SocketAddress> addresses;
    for (const std::string& host : hosts) addresses.push_back(Number(host));
    std::vector<std::string> names;
    for (const SocketAddress& address : OpenFirst(addresses)) names.push_back(address.Host());
    return names;
  };
  using Hosts = std::vector<std::string>;
  CHECK(order({"127.0.1.1", "198.51.100.7", "::1", "198.51.100.8"}) ==
        Hosts({"198.51.100.7", "198.51.100.8", "127.0.1.1", "::1"}));
  CHECK(order({"127.0.1.1", "127.0.0.1"}) == Hosts({"127.0.1.1", "127.0.0.1"}));
}

TEST_CASE("Meeting: a name that is loopback on rank 0's machine is said when ranks do not come",
          "[collectives][thread]") {
  CHECK_THAT(HiddenByName("node-1", Number("127.0.1.1")),
             ContainsSubstring("MASTER_ADDR 'node-1' is 127.0.1.1 on rank 0's machine") &&
                 ContainsSubstring("/etc/hosts"));
  CHECK(HiddenByName("node-1", Number("198.51.100.7")) == "");
  CHECK(HiddenByName("localhost", Number("127.0.0.1")) == "");
  CHECK(HiddenByName("127.0.1.1", Number("127.0.1.1")) == "");
  CHECK(HiddenByName("::1", Number("::1")) == "");
  // What this machine calls itself may be either.
  char name[256] = "";
  REQUIRE(gethostname(name, sizeof(name) - 1) == 0);
  const auto own = Resolve(name, 1, kLong);
  if (!own.ok()) return;
  const auto wait = [](const std::string& address) {
    return Meet(2, kShort,
                [&](RendezvousOptions& o) {
                  o.address = address;
                  o.token = "x";
                },
                {1});
  };
  const Meeting meeting = wait(name);
  INFO(meeting[0].status().ToString());
  CHECK(absl::IsDeadlineExceeded(meeting[0].status()));
  const bool open = !OpenFirst(*own)[0].loopback() || std::string(name) == "localhost";
  CHECK((MessageOf(meeting, 0).find("other machines cannot reach it") == std::string::npos) ==
        open);
  CHECK_THAT(MessageOf(wait("127.0.0.1"), 0), !ContainsSubstring("other machines"));
}

// At most `most` open files for this process while it lives.
class FewFiles {
 public:
  explicit FewFiles(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{most, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

#if !defined(ZERO_POISON)  // sanitizers need files of their own
TEST_CASE("Meeting: rank 0 does not spin while it has no file for a connection that waits",
          "[collectives][thread]") {
  RendezvousOptions options;
  options.size = 2;
  options.port = FreePort();
  options.deadline = absl::Milliseconds(1500);
  absl::Status status;
  double busy = 0;  // seconds of processor
  std::thread rank_0([&] {
    status = Rendezvous::Create(options).status();
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    busy = static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  });
  const SocketAddress there = Loopback(options.port);
  const Socket stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(Soon([&] { return Connect(there, absl::Seconds(1)).error == 0; }));  // it listens
  int connected = -1;
  {
    // Standard input, output and error.
    const FewFiles few(3);
    connected =
        connect(stranger.fd(), reinterpret_cast<const sockaddr*>(&there.storage), there.length);
    rank_0.join();
  }
  CHECK(connected == 0);
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(busy < 0.5);
}
#endif

TEST_CASE("Meeting: without a token only loopback is used and the message says how to set one",
          "[collectives]") {
  const Meeting meeting =
      Meet(2, kLong, [&](RendezvousOptions& o) { o.address = "198.51.100.77"; }, {1});
  CHECK(absl::IsInvalidArgument(meeting[0].status()));
  CHECK_THAT(MessageOf(meeting, 0), ContainsSubstring("ZERO_JOB_TOKEN"));
}

TEST_CASE("Meeting: an address that stands for all of a machine is refused on every rank",
          "[collectives]") {
  for (const char* address : {"0.0.0.0", "::"}) {
    const Meeting meeting = Meet(2, kLong, [&](RendezvousOptions& o) {
      o.address = address;
      o.token = "x";
    });
    for (int r = 0; r < 2; ++r) {
      INFO(meeting[r].status().ToString());
      CHECK(absl::IsInvalidArgument(meeting[r].status()));
      CHECK_THAT(MessageOf(meeting, r),
                 ContainsSubstring(absl::StrCat("MASTER_ADDR is '", address, "'")) &&
                     ContainsSubstring("rank 0's machine"));
    }
  }
}

TEST_CASE("Meeting: a program that takes connections and says nothing is not waited for",
          "[collectives][thread]") {
  const int port = FreePort();
  const SocketOrErrno other = Listen(Loopback(port));
  REQUIRE(other.error == 0);
  const double start = Seconds();
  const Meeting meeting = Meet(2, kLong, [&](RendezvousOptions& o) { o.port = port; }, {0});
  CHECK(Seconds() - start < 60);
  CHECK_THAT(MessageOf(meeting, 1),
             ContainsSubstring("not rank 0 there: no answer") && ContainsSubstring("MASTER_PORT"));
}

TEST_CASE("Meeting: a rank that cannot take part tells the others why at once",
          "[collectives][thread]") {
  for (int declines : {0, 1, 2}) {
    CAPTURE(declines);
    const double start = Seconds();
    const Meeting meeting = Meet(3, kLong, [&](RendezvousOptions& o) {
      if (o.rank == declines) o.failure = absl::DataLossError("a bad file");
    });
    CHECK(Seconds() - start < kSoon);
    for (int r = 0; r < 3; ++r) {
      INFO(meeting[r].status().ToString());
      CHECK(absl::IsDataLoss(meeting[r].status()));
      CHECK_THAT(MessageOf(meeting, r), ContainsSubstring("a bad file"));
      const std::string who = absl::StrCat("rank ", declines, ": ");
      CHECK((MessageOf(meeting, r).find(who) == 0) == (r != declines));
    }
  }
}

TEST_CASE("Meeting: a rank that cannot take part does not wait long for others",
          "[collectives][thread]") {
  for (int declines : {0, 1}) {
    const double start = Seconds();
    const Meeting meeting =
        Meet(2, kLong, [&](RendezvousOptions& o) { o.failure = absl::DataLossError("a bad file"); },
             {1 - declines});
    CHECK(Seconds() - start < kSoon);
    CHECK(meeting[declines].status() == absl::DataLossError("a bad file"));
  }
}

TEST_CASE("Meeting: ranks that never start are named at the deadline on all that wait",
          "[collectives][thread]") {
  const double start = Seconds();
  const Meeting meeting = Meet(4, kShort, nullptr, {1, 3});
  CHECK(Seconds() - start >= 0.6);
  CHECK(Seconds() - start < kSoon);
  for (int r : {0, 2}) {
    CHECK(absl::IsDeadlineExceeded(meeting[r].status()));
    CHECK_THAT(MessageOf(meeting, r), ContainsSubstring("for rank 1, 3 to join"));
    CHECK_THAT(MessageOf(meeting, r), ContainsSubstring("it must run, with the same MASTER_ADDR"));
  }
}

TEST_CASE("Meeting: rank 0 that never starts is named with address and port",
          "[collectives][thread]") {
  const Meeting meeting = Meet(3, kShort, nullptr, {0});
  for (int r : {1, 2}) {
    INFO(meeting[r].status().ToString());
    CHECK(absl::IsDeadlineExceeded(meeting[r].status()));
    CHECK_THAT(MessageOf(meeting, r), ContainsSubstring("to reach rank 0 at 127.0.0.1:"));
    CHECK_THAT(MessageOf(meeting, r), ContainsSubstring("Connection refused"));
  }
}

// Every rank that took part ends at once with a message that has these words.
void CheckRefused(const Meeting& meeting, const std::vector<std::string>& words) {
  for (const auto& rendezvous : meeting) {
    INFO(rendezvous.status().ToString());
    CHECK(absl::IsInvalidArgument(rendezvous.status()));
    for (const std::string& word : words) {
      CHECK_THAT(std::string(rendezvous.status().message()), ContainsSubstring(word));
    }
  }
}

TEST_CASE("Meeting: two processes with one rank are named on all ranks", "[collectives][thread]") {
  const double start = Seconds();
  CheckRefused(Meet(4, kLong,
                    [](RendezvousOptions& o) {
                      if (o.rank == 3) o.rank = 2;
                    }),
               {"two processes say that they are rank 2", "RANK"});
  CHECK(Seconds() - start < kSoon);
}

TEST_CASE("Meeting: a rank outside the job is refused before anything is opened", "[collectives]") {
  for (int rank : {-1, 2, 7}) {
    RendezvousOptions options;
    options.rank = rank;
    options.size = 2;
    options.port = 29500;
    const auto created = Rendezvous::Create(options);
    CHECK(absl::IsInvalidArgument(created.status()));
    CHECK_THAT(std::string(created.status().message()),
               ContainsSubstring(absl::StrCat("rank ", rank)) && ContainsSubstring("from 0 to 1"));
  }
}

TEST_CASE("Meeting: another world size is named with both ranks and sizes",
          "[collectives][thread]") {
  CheckRefused(Meet(3, kLong,
                    [](RendezvousOptions& o) {
                      if (o.rank == 2) o.size = 4;
                    }),
               {"rank 2 was started for 4 ranks, rank 0 for 3", "WORLD_SIZE"});
}

TEST_CASE("Meeting: another version of the library is named with both versions",
          "[collectives][thread]") {
  CheckRefused(Meet(3, kLong,
                    [](RendezvousOptions& o) {
                      if (o.rank == 1) o.version = "9.9.9";
                    }),
               {"runs version 9.9.9, rank 0 runs version " + LibraryVersion()});
}

TEST_CASE("Meeting: another configuration is named with both ranks and the first line that differs",
          "[collectives][thread]") {
  CheckRefused(Meet(3, kLong,
                    [](RendezvousOptions& o) {
                      o.configuration = absl::StrCat("dtype=bf16\nstage=", o.rank == 2 ? 3 : 2,
                                                     "\nprefetch=", o.rank);
                      if (o.rank == 1) o.configuration = "dtype=bf16\nstage=2\nprefetch=0";
                    }),
               {"rank 0 and rank 2", "'stage=2' against 'stage=3'"});
}

TEST_CASE("Meeting: a rank with another token is refused and rank 0 names where it came from",
          "[collectives][thread]") {
  const Meeting meeting =
      Meet(2, kShort, [](RendezvousOptions& o) { o.token = o.rank == 0 ? "right" : "wrong"; });
  CHECK(absl::IsInvalidArgument(meeting[1].status()));
  CHECK_THAT(MessageOf(meeting, 1), ContainsSubstring("tokens differ"));
  CHECK(absl::IsDeadlineExceeded(meeting[0].status()));
  CHECK_THAT(MessageOf(meeting, 0), ContainsSubstring("for rank 1") &&
                                        ContainsSubstring("from 127.0.0.1:") &&
                                        ContainsSubstring("ZERO_JOB_TOKEN"));
}

TEST_CASE("Meeting: strangers that send nothing or garbage do not hurt the job",
          "[collectives][thread]") {
  const int port = FreePort();
  std::vector<Socket> strangers;
  std::thread stranger([&] {
    const std::string garbage[] = {"GET / HTTP/1.1\r\n\r\n", std::string(100000, '\xff'),
                                   std::string("\x04\x00\x00\x00\x02join", 9), "\x05"};
    for (int i = 0; i < 100; ++i) {
      SocketOrErrno made = Connect(Loopback(port), absl::Seconds(1));
      if (made.error != 0) {  // rank 0 has not started
        Sleep(5);
        continue;
      }
      int error = 0;
      const std::string& text = garbage[i % 4];
      if (i % 5 != 0) WriteSome(made.socket, text.data(), text.size(), error);
      strangers.push_back(std::move(made.socket));
    }
  });
  Meeting meeting = Meet(3, kLong, [&](RendezvousOptions& o) {
    o.port = port;
    if (o.rank == 2) stranger.join();
  });
  CHECK(strangers.size() > 70);
  CHECK(FirstError(OnEachMember(meeting, [](Rendezvous& rendezvous) {
          return rendezvous.Exchange("x", "").status();
        })) == "");
  CHECK(FirstError(CloseAll(meeting)) == "");
}

TEST_CASE("Meeting: an impostor that listens in place of rank 0 is found out",
          "[collectives][thread]") {
  const int port = FreePort();
  const SocketOrErrno listener = Listen(Loopback(port));
  REQUIRE(listener.error == 0);
  std::thread impostor([&] {
    SocketAddress peer;
    SocketOrErrno made;
    while (!made.socket.valid()) made = Accept(listener.socket, peer);
    Connection connection(std::move(made.socket), peer.Text());
    connection.Send(GreetingFrame("sixteen letters."));
    connection.Send(FrameWriter(FrameType::kRoster)
                        .Text(HubProof("guessed", "sixteen letters."))
                        .Text("")
                        .Finish());
    connection.Finish(absl::Seconds(5));
  });
  const Meeting meeting = Meet(2, kLong,
                               [&](RendezvousOptions& o) {
                                 o.port = port;
                                 o.token = "secret";
                               },
                               {0});
  impostor.join();
  CHECK(absl::IsInvalidArgument(meeting[1].status()));
  CHECK_THAT(MessageOf(meeting, 1), ContainsSubstring("does not know the job's token"));
}

TEST_CASE("Meeting: a connection that falls silent is named on every rank within the deadline",
          "[collectives][thread]") {
  // A rank that joins by hand and then says nothing more, as one that is stopped does.
  const int port = FreePort();
  std::atomic<bool> done{false};
  std::thread silent([&] {
    SocketOrErrno made{Socket(), 1};
    while (made.error != 0) made = Connect(Loopback(port), absl::Seconds(1));
    Connection connection(std::move(made.socket), "rank 0");
    std::optional<Frame> frame;
    while (!frame.has_value() && connection.Receive().ok() && connection.Next(frame).ok()) Sleep(1);
    Join join;
    join.version = LibraryVersion();
    join.nonce = NewNonce();
    join.rank = 1;
    join.size = 3;
    if (frame.has_value()) connection.Send(JoinFrame(join, "", *ReadGreeting(*frame)));
    while (!done) Sleep(1);
  });
  const Meeting meeting =
      Meet(3, absl::Milliseconds(1500), [&](RendezvousOptions& o) { o.port = port; }, {1});
  const double start = Seconds();
  for (int r : {0, 2}) {
    REQUIRE(meeting[r].ok());
    CHECK(Soon([&] { return !(*meeting[r])->Health().ok(); }));
    const absl::Status status = (*meeting[r])->Health();
    INFO(status.ToString());
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("rank 1 has sent nothing"));
  }
  CHECK(Seconds() - start < kSoon);
  done = true;
  silent.join();
}

}  // namespace
}  // namespace zero::test
