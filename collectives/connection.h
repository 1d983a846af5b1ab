// A socket that carries frames, driven by one thread that polls.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/frame.h"
#include "collectives/socket.h"

namespace zero {

using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }
// How much longer than the deadline a rank waits for the verdict of rank 0, which has the same one.
inline constexpr absl::Duration kVerdictTime = absl::Seconds(2);
// At most kLongestWait (device/operation.h).
std::chrono::nanoseconds Bounded(absl::Duration duration);

class Connection {
 public:
  // Longest frame of one that has not shown that it belongs to the job.
  static constexpr size_t kStrangerLimit = size_t{96} << 10;
  // 1024 ranks bring and get some 200 KiB each in one exchange.
  static constexpr size_t kMemberLimit = size_t{16} << 20;

  Connection(Socket socket, std::string peer)
      : socket_(std::move(socket)), peer_(std::move(peer)), incoming_(kStrangerLimit) {}

  const Socket& socket() const { return socket_; }
  const std::string& peer() const { return peer_; }  // address and port
  void Trust() { incoming_.set_limit(kMemberLimit); }

  // What has arrived. Not OK when the connection has ended or broken: kUnavailable.
  absl::Status Receive();
  absl::Status Next(std::optional<Frame>& frame) { return incoming_.Next(frame); }

  // Sends, now or with later calls of Flush. Errors show in Receive.
  void Send(const Frame& frame);
  void Flush();
  bool pending() const { return !outgoing_.empty(); }

  // Sends what is left and waits until the peer has read it and closed, at most `limit`. Without it
  // the system may throw away what was sent last.
  void Finish(absl::Duration limit);

  SteadyTime last_received() const { return last_received_; }
  SteadyTime last_sent() const { return last_sent_; }

 private:
  Socket socket_;
  std::string peer_;
  FrameBuffer incoming_;
  std::string outgoing_;
  bool broken_ = false;
  SteadyTime last_received_ = SteadyNow();
  SteadyTime last_sent_ = SteadyNow();
};

}  // namespace zero
