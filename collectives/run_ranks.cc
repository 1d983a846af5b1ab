#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/seeded_scheduler.h"

namespace zero {
namespace {

absl::Status Guarded(const std::function<absl::Status(ProcessGroup*)>& body, ProcessGroup* group) {
  try {
    return body(group);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("threw: ", error.what()));
  } catch (...) {
    return absl::InternalError("threw something that is no std::exception");
  }
}

}  // namespace

absl::Status RunRanks(LocalWorld& world,
                      const std::function<absl::Status(ProcessGroup* group)>& body,
                      SeededScheduler* scheduler) {
  std::mutex mutex;
  absl::Status first;
  const auto fail = [&](int rank, const absl::Status& status) {
    const absl::Status named(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
    {
      std::lock_guard<std::mutex> lock(mutex);
      // kAborted only reports that the group died of somebody else's error.
      if (first.ok() || (absl::IsAborted(first) && !absl::IsAborted(named))) first = named;
    }
    world.group(rank)->Abort(named);
  };
  const auto run = [&](int rank) {
    const absl::Status status = Guarded(body, world.group(rank));
    if (!status.ok()) fail(rank, status);
  };
  if (scheduler != nullptr) {
    std::vector<std::function<void()>> drivers;
    for (int rank = 0; rank < world.size(); ++rank) drivers.push_back([&, rank] { run(rank); });
    const absl::Status started = scheduler->RunDrivers(drivers);
    return started.ok() ? first : started;
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size(); ++rank) {
    try {
      threads.emplace_back([&, rank] { run(rank); });
    } catch (const std::system_error& error) {
      fail(rank, absl::ResourceExhaustedError(absl::StrCat("no thread for it: ", error.what())));
    }
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace zero
