// How frames travel between a rank and the hub, which is part of rank 0's process.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/frame.h"
#include "collectives/socket.h"

namespace zero {

// All calls from one thread at a time.
class ControlLink {
 public:
  virtual ~ControlLink() = default;
  // To the hub.
  virtual void Submit(const Frame& frame) = 0;
  // Handles what happens on the sockets until `wake_fd` can be read or `limit` has passed.
  virtual void Poll(int wake_fd, absl::Duration limit) = 0;
  // Closes, after what was sent has gone out.
  virtual void Finish() = 0;
  // Of this machine, as the other side sees it.
  virtual std::string local_address() const = 0;

  // Gets the frames for this rank; kFailed among them where the link itself is lost.
  void set_receiver(std::function<void(const Frame&)> receiver) { receiver_ = std::move(receiver); }

 protected:
  void Deliver(const Frame& frame) const {
    if (receiver_) receiver_(frame);
  }

 private:
  std::function<void(const Frame&)> receiver_;
};

// Signs of life are sent this often, so that a silent peer is noticed within `deadline`.
absl::Duration PingInterval(absl::Duration deadline);

}  // namespace zero
