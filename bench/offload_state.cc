#include "bench/offload_state.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/status.h"
#include "io/folder.h"
#include "zero/save/checkpoint.h"

namespace zero::bench {
namespace {

constexpr int64_t kPlain = int64_t{1} << 29;

// Seconds that plain requests need for a row's bytes.
double PlainSeconds(const StateRow& row, const DiskSpeed& disk) {
  const auto read = static_cast<double>(row.read);
  const auto written = static_cast<double>(row.written);
  if (row.read == 0) return written / disk.write;
  if (row.written == 0) return read / disk.read;
  return std::max(read / disk.read_beside_write, written / disk.write_beside_read);
}

}  // namespace

absl::StatusOr<std::vector<StateRow>> MeasureDiskState(const StageModel& model,
                                                       const DiskRun& run) {
  ThreadPool pool(static_cast<int>(run.threads));
  HostDevice::Options options;
  options.pool = &pool;
  const int64_t elements = model.units * model.elements;
  const int64_t weight = SizeOf(model.dtype);
  const int64_t saved = elements * 12;
  std::vector<StateRow> rows = {{"Write of masters, weights", 0, elements * (4 + weight), {}, {}},
                                {"Read of moments", elements * 4, 0, {}, {}},
                                {"SaveCheckpoint", saved, saved, {}, {}},
                                {"LoadCheckpoint", saved, saved + elements * weight, {}, {}}};
  const std::string folder = absl::StrCat(run.folder, "/checkpoints");
  LocalWorld world(1);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<StageRank> rank,
                        StageRank::Create(model, DiskConfig(model, run), options, world.group(0)));
  ShardedOptimizer& optimizer = rank->optimizer();
  ZERO_RETURN_IF_ERROR(rank->Step());
  ZERO_RETURN_IF_ERROR(rank->Finish());
  std::string checkpoint;
  const std::vector<std::function<absl::Status()>> work = {
      [&] { return optimizer.Write(State::kMaster, InitialWeights()); },
      [&] {
        return optimizer.Read(
            State::kMoment1,
            [](const Parameter&, int64_t, absl::Span<const float>) { return absl::OkStatus(); });
      },
      [&]() -> absl::Status {
        ZERO_ASSIGN_OR_RETURN(auto pending, optimizer.SaveCheckpoint(folder));
        ZERO_RETURN_IF_ERROR(optimizer.FinishCheckpoint());
        ZERO_ASSIGN_OR_RETURN(const CheckpointReport report, pending.Get());
        checkpoint = report.path;
        return absl::OkStatus();
      },
      [&] { return optimizer.LoadCheckpoint(checkpoint).status(); }};
  for (int64_t repeat = 0; repeat < run.repeats; ++repeat) {
    ZERO_ASSIGN_OR_RETURN(DiskSpeed before, MeasureDisk(run.folder, kPlain));
    for (size_t i = 0; i < rows.size(); ++i) {
      const double start = Now();
      ZERO_RETURN_IF_ERROR(work[i]());
      const double seconds = Now() - start;
      ZERO_ASSIGN_OR_RETURN(const DiskSpeed after, MeasureDisk(run.folder, kPlain));
      rows[i].seconds.Add(seconds);
      rows[i].shares.Add((PlainSeconds(rows[i], before) + PlainSeconds(rows[i], after)) / 2 /
                         seconds);
      before = after;
    }
    ZERO_RETURN_IF_ERROR(RemoveTree(folder));
  }
  return rows;
}

}  // namespace zero::bench
