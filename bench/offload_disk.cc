#include "bench/offload_disk.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/disk_copies.h"
#include "collectives/local_group.h"
#include "device/status.h"
#include "io/aligned_bytes.h"
#include "io/folder.h"
#include "zero/plan.h"

namespace zero::bench {
namespace {

constexpr int64_t kAlone = int64_t{256} << 20;

// The file of the only rank that offloads to `folder`.
absl::StatusOr<std::string> StateFile(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  if (names.size() == 1) return absl::StrCat(folder, "/", names[0], "/state");
  return absl::InternalError(absl::StrCat(folder, " has ", names.size(), " folders, not one"));
}

// Each record is read whole and written without its gradient, which came before; weights are
// written once and read for each gather.
void CountBytes(const Plan& plan, DiskTimes& times) {
  times.read = plan.first_pass_gathered;
  for (size_t u = 0; u < plan.layout.units.size(); ++u) {
    for (const OffloadPiece& piece : plan.offload.pieces[u]) {
      const Segment& segment = plan.layout.units[u].segments[piece.segment];
      const RecordLayout layout = MakeRecordLayout(plan.config, segment, plan.moments, piece.count);
      times.read += layout.end();
      times.written += layout.end() + PaddedForDisk(piece.count * SizeOf(segment.dtype));
    }
  }
}

}  // namespace

Config DiskConfig(const StageModel& model, const DiskRun& run) {
  Config config = StageRank::ConfigOf(model, 3);
  config.accumulation = run.gradients;
  config.offload.optimizer = Place::kNvme;
  config.offload.parameters = Place::kNvme;
  config.offload.nvme_path = run.folder;
  config.offload.piece_elements = run.piece_elements;
  config.offload.buffer_count = run.buffer_count;
  return config;
}

absl::StatusOr<DiskTimes> MeasureDiskSteps(const StageModel& model, const DiskRun& run) {
  ThreadPool pool(static_cast<int>(run.threads));
  HostDevice::Options options;
  options.pool = &pool;
  DiskTimes times;
  ZERO_ASSIGN_OR_RETURN(times.alone, MeasureDisk(run.folder, kAlone));
  LocalWorld world(1);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<StageRank> rank,
                        StageRank::Create(model, DiskConfig(model, run), options, world.group(0)));
  CountBytes(rank->plan(), times);
  const auto steps = static_cast<double>(run.steps);
  const auto bytes = static_cast<double>(times.read + times.written);
  ZERO_RETURN_IF_ERROR(rank->Step());
  ZERO_ASSIGN_OR_RETURN(const std::string file, StateFile(run.folder));
  ZERO_ASSIGN_OR_RETURN(double before, CopyInPlace(file, times.read, times.written));
  for (int64_t repeat = 0; repeat < run.repeats; ++repeat) {
    const double start = Now();
    for (int64_t s = 0; s < run.steps; ++s) {
      ZERO_RETURN_IF_ERROR(rank->EnqueueStep({}).status());
    }
    ZERO_RETURN_IF_ERROR(rank->Finish());
    const double seconds = (Now() - start) / steps;
    ZERO_ASSIGN_OR_RETURN(const double after, CopyInPlace(file, times.read, times.written));
    times.seconds.Add(seconds);
    times.plain.Add(after);
    times.shares.Add(bytes / seconds / ((before + after) / 2));
    before = after;
  }
  return times;
}

}  // namespace zero::bench
