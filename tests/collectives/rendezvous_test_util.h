// Rendezvous of several ranks in one process, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
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
