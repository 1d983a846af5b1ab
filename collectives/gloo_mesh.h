// Connections of this rank to all others, and transfers over them that can be interrupted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/rendezvous.h"

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace zero {

// Memory that is sent to or received from one peer.
struct Transfer {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
  bool arrived = false;  // set by GlooMesh
  std::shared_ptr<gloo::transport::UnboundBuffer> buffer;
};

// Threads that call Connect and Move must have SIGPIPE blocked: Gloo writes to sockets in a way
// that raises it.
class GlooMesh {
 public:
  // [collective] Connects every pair of ranks, and lets the two ends prove to each other that they
  // are. kAborted, kDeadlineExceeded: see Rendezvous; a stranger: kInvalidArgument.
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Connect(Rendezvous& rendezvous,
                                                           absl::Duration deadline);
  ~GlooMesh();

  // Receives and sends everything, under a number that is used once. On every rank the transfers
  // between two ranks are in the same order. Several threads may move under several numbers. OK
  // when all has arrived and what was sent may be changed. Else kAborted, with the peer in
  // `failed_peer`, or kCancelled after Interrupt; `arrived` then tells which receives were
  // complete, and no memory is touched any more, but the mesh is of no use.
  absl::Status Move(uint64_t number, std::vector<Transfer>& receives, std::vector<Transfer>& sends,
                    int& failed_peer);

  // Ends all Moves, those that run and those to come.
  void Interrupt();
  // Hangs up.
  void Disconnect();

 private:
  GlooMesh(int rank, int size) : rank_(rank), size_(size) {}

  absl::Status Open(Rendezvous& rendezvous, absl::Duration deadline);
  absl::Status Greet(const std::vector<std::string>& nonces);
  absl::Status Wait(std::vector<Transfer>& receives, std::vector<Transfer>& sends,
                    int& failed_peer);
  bool interrupted();

  const int rank_;
  const int size_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::mutex mutex_;
  // Guarded by mutex_:
  bool interrupted_ = false;
  std::set<gloo::transport::UnboundBuffer*> waiting_;
};

}  // namespace zero
