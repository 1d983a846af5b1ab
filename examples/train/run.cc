#include "examples/train/run.h"

#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collectives/local_group.h"
#include "device/first_error.h"
#include "device/status.h"
#include "examples/train/rank_error.h"

namespace zero::train {
namespace {

absl::Status Train(const Job& job, RankTrainer& trainer, int rank) {
  try {
    ZERO_RETURN_IF_ERROR(trainer.Initialise());
    ZERO_RETURN_IF_ERROR(trainer.Run());
    if (job.end != nullptr && (rank == 0 || job.group != nullptr)) *job.end = trainer.end();
    const bool stopped = trainer.end().signals != 0;
    return job.finish && !stopped ? job.finish(trainer.optimizer(), rank) : absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("threw: ", error.what()));
  } catch (...) {
    return absl::InternalError("threw something that is no std::exception");
  }
}

}  // namespace

absl::Status RunJob(const Job& job) {
  if (job.group != nullptr) {
    RankTrainer trainer(job, job.group);
    const absl::Status status = Train(job, trainer, job.group->rank());
    // As below: this rank's streams may be waiting for the others.
    if (!status.ok()) job.group->Abort(status);
    return status;
  }
  // Of the rank that failed first. The others fail because of it, perhaps with the same words.
  FirstError first;
  LocalWorld world(static_cast<int>(job.options.ranks), absl::Seconds(job.options.deadline));
  const absl::Status all = RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    // Before the trainer goes, the others learn of an error: its streams may be waiting for them.
    const auto failed = [&](const absl::Status& status) {
      first.Add(OfRank(group->rank(), status));
      group->Abort(status);
      return status;
    };
    RankTrainer trainer(job, group);
    const absl::Status status = Train(job, trainer, group->rank());
    return status.ok() ? status : failed(status);
  });
  return first.status().ok() ? all : first.status();
}

}  // namespace zero::train
