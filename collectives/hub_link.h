// Rank 0's end of all connections: who may join, and the hub behind them.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/connection.h"
#include "collectives/control_link.h"
#include "collectives/handshake.h"
#include "collectives/hub.h"
#include "collectives/rendezvous.h"

namespace zero {

// Those that other machines may reach come first: Debian maps a machine's own name to 127.0.1.1.
std::vector<SocketAddress> OpenFirst(std::vector<SocketAddress> addresses);
// What a job on several machines should know of rank 0 listening on `address` for MASTER_ADDR
// `name`; empty when that is what the name says.
std::string HiddenByName(const std::string& name, const SocketAddress& address);

class HubLink : public ControlLink {
 public:
  // Listens on the address of `options` and waits until all ranks have joined. One rank: no socket.
  static absl::StatusOr<std::unique_ptr<HubLink>> Gather(const RendezvousOptions& options);

  void Submit(const Frame& frame) override { hub_.OnFrame(0, frame); }
  void Poll(int wake_fd, absl::Duration limit) override;
  void Finish() override;
  std::string local_address() const override { return local_address_; }

 private:
  // Somebody who has connected and not yet shown who they are. Each gets little memory and time,
  // and the oldest goes when there are many.
  struct Stranger {
    Connection connection;
    std::string nonce;
    SteadyTime since = SteadyNow();
  };
  struct Member {
    std::optional<Connection> connection;
    std::string nonce;
  };

  explicit HubLink(const RendezvousOptions& options);

  absl::Status StartListening(SteadyTime until);
  absl::Status GatherUntil(SteadyTime until);
  void Greet();
  // An error here is one of the job's own ranks, and ends the job.
  absl::Status Admit(Stranger& stranger, const Join& join);
  // Whether the stranger stays one.
  bool Hear(Stranger& stranger);
  // A job that cannot begin ends when every rank can be told, or after a short while.
  bool AllCanBeTold() const;
  void Refuse(Stranger& stranger, const std::string& why);
  std::string Missing() const;  // "1, 3"; empty when all are here
  // To all: when nobody is missing, and now and then before.
  void SendRosters();
  // False when the connection of `rank` has ended.
  bool Listen(int rank);
  void Send(int rank, const Frame& frame);

  const RendezvousOptions options_;
  std::string local_address_;
  std::string hidden_;  // see HiddenByName
  Socket listener_;
  std::list<Stranger> strangers_;
  std::vector<Member> members_;
  absl::Status failure_;  // the first that a rank brought
  SteadyTime failed_at_;
  std::vector<Connection> turned_away_;  // of ranks that brought one
  int refused_ = 0;
  std::string last_refused_;  // who and why
  bool gathering_ = true;
  bool roster_changed_ = false;
  SteadyTime roster_sent_;
  Hub hub_;
};

}  // namespace zero
