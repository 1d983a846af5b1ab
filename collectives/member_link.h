// A rank's connection to the hub.
#pragma once

#include <memory>
#include <string>

#include "collectives/connection.h"
#include "collectives/control_link.h"
#include "collectives/rendezvous.h"

namespace zero {

class MemberLink : public ControlLink {
 public:
  // Connects, trying again until rank 0 is there, joins, and waits until all ranks have.
  static absl::StatusOr<std::unique_ptr<MemberLink>> Join(const RendezvousOptions& options);

  void Submit(const Frame& frame) override { connection_.Send(frame); }
  void Poll(int wake_fd, absl::Duration limit) override;
  void Finish() override { connection_.Finish(absl::Seconds(1)); }
  std::string local_address() const override { return LocalAddress(connection_.socket()).Host(); }

 private:
  MemberLink(const RendezvousOptions& options, Connection connection)
      : options_(options), connection_(std::move(connection)) {}

  absl::Status JoinUntil(SteadyTime until);
  // The next frame; kUnavailable when the connection ends, kDeadlineExceeded at `until`.
  absl::StatusOr<Frame> Wait(SteadyTime until);
  void Lose(const absl::Status& reason);

  const RendezvousOptions options_;
  Connection connection_;
  bool lost_ = false;
};

}  // namespace zero
