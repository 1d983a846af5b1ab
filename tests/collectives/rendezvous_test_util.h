// Rendezvous of several ranks in one process, each on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "collectives/rendezvous.h"
#include "collectives/socket.h"

namespace zero::test {

// A port of 127.0.0.1 that nobody listens on.
int FreePort();

using Meeting = std::vector<absl::StatusOr<std::unique_ptr<Rendezvous>>>;

// Creates a rendezvous per rank of [0, size) at once, on a free port. `change` sees the options of
// each rank before that; `absent`: ranks that never start.
Meeting Meet(int size, absl::Duration deadline,
             const std::function<void(RendezvousOptions&)>& change = nullptr,
             const std::vector<int>& absent = {});

// A line to rank 0 of a meeting that can be held: what a rank sends does not arrive meanwhile, as
// when rank 0 is too busy to read it.
class HeldLine {
 public:
  HeldLine();
  ~HeldLine();
  // For the ranks' options: rank 0 takes a port of its own, `rank` comes over this line.
  void Join(RendezvousOptions& options, int rank) const;
  void Hold(bool held) { held_ = held; }

 private:
  void Serve();

  const int outer_port_;
  const int inner_port_;
  Socket listener_;
  std::atomic<bool> held_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Calls body(rank's rendezvous) on a thread per rank; what each returned.
std::vector<absl::Status> OnEachMember(const Meeting& meeting,
                                       const std::function<absl::Status(Rendezvous&)>& body);

// Every rank leaves, then all are destroyed. What each Close returned.
std::vector<absl::Status> CloseAll(Meeting& meeting);

// The status of a rank that must be OK on all ranks; "" or the first that is not.
std::string FirstError(const std::vector<absl::Status>& statuses);

// Seconds since some fixed point.
double Seconds();
void Sleep(int milliseconds);

// Polls until `condition` or 20 seconds have passed; whether it became true.
bool Soon(const std::function<bool()>& condition);

}  // namespace zero::test
