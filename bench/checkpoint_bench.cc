// zero-bench checkpoint: checkpoints saved and loaded beside plain writes and reads of the same
// bytes on the same disk, and what training loses while one is written.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/json_file.h"
#include "bench/machine.h"
#include "bench/plain_files.h"
#include "bench/samples.h"
#include "bench/stage_rank.h"
#include "bench/subcommand.h"
#include "bench/workspace.h"
#include "collectives/local_group.h"
#include "device/host_memory.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "examples/support/memory.h"
#include "io/folder.h"
#include "zero/save/checkpoint_description.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::bench {
namespace {

struct Options {
  int64_t ranks = 2;
  int64_t stage = 3;
  int64_t elements = 1 << 23;
  int64_t units = 4;
  int64_t repeats = 5;
  int64_t compute_ms = 100;
  std::string dtype = "bf16";
  std::string folder = ".";
  std::string json;
};

struct Results {
  int64_t bytes = 0;  // of all ranks' files
  Samples write, save, read, load;
  // A checkpoint while training goes on.
  Samples call;      // until SaveCheckpoint returned
  Samples save_all;  // until the checkpoint was complete
  Samples stall;     // what its steps and the call took more than steps do without it
  double step = 0;   // median without
};

// One rank's part of a run.
class Bench {
 public:
  Bench(const Options& o, const std::string& folder, ProcessGroup* group, Results* results)
      : o_(o), folder_(folder), group_(group), results_(results) {}

  absl::Status Run(const StageModel& model) {
    {
      ZERO_ASSIGN_OR_RETURN(rank_,
                            StageRank::Create(model, static_cast<int>(o_.stage), nullptr, group_));
      ZERO_RETURN_IF_ERROR(rank_->Step());
      for (int64_t repeat = 0; repeat < o_.repeats; ++repeat)
        ZERO_RETURN_IF_ERROR(Synchronous(repeat));
      rank_.reset();
    }
    // The state, and room for what does not fill a slot.
    const int64_t all = 4 * results_->bytes / o_.ranks + (int64_t{64} << 20);
    ZERO_ASSIGN_OR_RETURN(
        rank_, StageRank::Create(model, static_cast<int>(o_.stage), nullptr, group_, all));
    return Asynchronous();
  }

 private:
  bool reports() const { return group_->rank() == 0; }

  // Seconds from when all ranks begin until all have ended.
  template <class Work>
  absl::Status Timed(Samples& samples, const Work& work) {
    ZERO_RETURN_IF_ERROR(rank_->Meet());
    const double start = Now();
    ZERO_RETURN_IF_ERROR(work());
    ZERO_RETURN_IF_ERROR(rank_->Meet());
    if (reports()) samples.Add(Now() - start);
    return absl::OkStatus();
  }

  absl::Status Synchronous(int64_t repeat) {
    const std::string checkpoint = absl::StrCat(folder_, "/", CheckpointName(1));
    const std::string own = absl::StrCat(
        checkpoint, "/", CheckpointFileName(group_->rank(), static_cast<int>(o_.ranks)));
    const std::string plain = absl::StrCat(folder_, "/plain-", group_->rank());
    const auto save = [&]() -> absl::Status {
      ZERO_ASSIGN_OR_RETURN(auto saved, rank_->optimizer().SaveCheckpoint(folder_));
      ZERO_ASSIGN_OR_RETURN(const CheckpointReport report, saved.Get());
      bytes_ = report.bytes;
      return absl::OkStatus();
    };
    // In turns: a disk may be busy with what came before.
    for (const bool saves : {repeat % 2 == 0, repeat % 2 != 0}) {
      ZERO_RETURN_IF_ERROR(saves ? Timed(results_->save, save) : Timed(results_->write, [&] {
        return WritePlain(plain, bytes_);
      }));
    }
    if (reports()) results_->bytes = bytes_ * o_.ranks;
    // The same file both ways, in turns: what lies behind the system's cache may have one of its
    // own.
    for (const bool loads : {repeat % 2 == 0, repeat % 2 != 0}) {
      // Memory that a virtual machine has given back is dear to whoever needs it first.
      ZERO_RETURN_IF_ERROR(ReadPlain(own));
      ZERO_RETURN_IF_ERROR(Forget(own));
      if (loads) {
        ZERO_RETURN_IF_ERROR(Timed(results_->load, [&] {
          return rank_->optimizer().LoadCheckpoint(checkpoint).status();
        }));
      } else {
        ZERO_RETURN_IF_ERROR(Timed(results_->read, [&] { return ReadPlain(own); }));
      }
    }
    // Nothing that is measured replaces a file, or pays for the removal of one.
    if (reports()) ZERO_RETURN_IF_ERROR(RemoveTree(checkpoint));
    return RemoveTree(plain);
  }

  // Steps until the checkpoint is complete, between steps that are not disturbed.
  absl::Status Asynchronous() {
    const double compute = static_cast<double>(o_.compute_ms) * 1e-3;
    Samples steps;
    const auto step = [&](Samples& samples) -> absl::Status {
      const double start = Now();
      ZERO_RETURN_IF_ERROR(rank_->Step(compute));
      samples.Add(Now() - start);
      return absl::OkStatus();
    };
    Samples warm_up;
    for (int i = 0; i < 3; ++i) ZERO_RETURN_IF_ERROR(step(warm_up));
    std::vector<double> lost;
    std::vector<int64_t> counts;
    for (int64_t repeat = 0; repeat < o_.repeats; ++repeat) {
      for (int i = 0; i < 5; ++i) ZERO_RETURN_IF_ERROR(step(steps));
      ZERO_RETURN_IF_ERROR(rank_->Meet());
      const double start = Now();
      ZERO_ASSIGN_OR_RETURN(auto saved, rank_->optimizer().SaveCheckpoint(folder_));
      const double returned = Now();
      int64_t count = 0;
      Samples during;
      // Every rank sees it complete at the same step.
      while (!saved.Ready()) {
        ZERO_RETURN_IF_ERROR(step(during));
        ++count;
      }
      const double end = Now();
      ZERO_ASSIGN_OR_RETURN(const CheckpointReport report, saved.Get());
      if (!reports()) continue;
      results_->call.Add(returned - start);
      results_->save_all.Add(report.seconds);
      lost.push_back(end - start);
      counts.push_back(count);
    }
    if (!reports()) return absl::OkStatus();
    results_->step = steps.median();
    for (size_t i = 0; i < lost.size(); ++i) {
      results_->stall.Add(lost[i] - static_cast<double>(counts[i]) * results_->step);
    }
    return absl::OkStatus();
  }

  const Options& o_;
  const std::string folder_;
  ProcessGroup* const group_;
  Results* const results_;
  std::unique_ptr<StageRank> rank_;
  int64_t bytes_ = 0;  // of this rank's file
};

void Print(const Options& o, const Results& r) {
  const double bytes = static_cast<double>(r.bytes);
  std::printf("%s\n", CpuName().c_str());
  std::printf("%lld ranks (threads), stage %lld, %lld units of %lld elements, %s, AdamW, %.1f MB, ",
              static_cast<long long>(o.ranks), static_cast<long long>(o.stage),
              static_cast<long long>(o.units), static_cast<long long>(o.elements), o.dtype.c_str(),
              bytes / 1e6);
  std::printf("%lld repeats in turn\n\n", static_cast<long long>(o.repeats));
  std::printf("%-26s %9s %9s %9s %9s\n", "", "median s", "min s", "max s", "GB/s");
  const auto line = [&](const char* what, const Samples& samples) {
    std::printf("%-26s %9.3f %9.3f %9.3f %9.2f\n", what, samples.median(), samples.min(),
                samples.max(), bytes / samples.median() / 1e9);
  };
  line("plain writes, synced", r.write);
  line("SaveCheckpoint", r.save);
  line("plain reads, not cached", r.read);
  line("LoadCheckpoint, not cached", r.load);
  std::printf("\nSaveCheckpoint at %.0f %% of plain writes, LoadCheckpoint at %.0f %% of reads, ",
              100 * MedianRatio(r.write, r.save), 100 * MedianRatio(r.read, r.load));
  std::printf("each beside its own\n");
  std::printf("while training goes on (steps of %.1f ms, %lld of them waiting for the device):\n",
              r.step * 1e3, static_cast<long long>(o.compute_ms));
  std::printf("  complete after %.3f s; the call took %.1f ms, %.1f %% of that\n",
              r.save_all.median(), r.call.median() * 1e3,
              100 * r.call.median() / r.save_all.median());
  std::printf("  training lost %.1f ms, %.1f %% of that (worst %.1f ms)\n", r.stall.median() * 1e3,
              100 * r.stall.median() / r.save_all.median(), r.stall.max() * 1e3);
}

absl::Status WriteJson(const Options& o, const Results& r) {
  std::ofstream file(o.json);
  file << absl::StrCat("{\"bench\":\"checkpoint\",\"cpu\":\"", CpuName(), "\",\"ranks\":", o.ranks,
                       ",\"stage\":", o.stage, ",\"units\":", o.units, ",\"elements\":", o.elements,
                       ",\"dtype\":\"", o.dtype, "\",\"repeats\":", o.repeats,
                       ",\"bytes\":", r.bytes)
       << absl::StrCat(",\"write_s\":", r.write.median(), ",\"save_s\":", r.save.median(),
                       ",\"read_s\":", r.read.median(), ",\"load_s\":", r.load.median(),
                       ",\"save_ratio\":", MedianRatio(r.write, r.save),
                       ",\"load_ratio\":", MedianRatio(r.read, r.load), ",\"step_s\":", r.step,
                       ",\"compute_ms\":", o.compute_ms)
       << absl::StrCat(",\"async_s\":", r.save_all.median(), ",\"call_s\":", r.call.median(),
                       ",\"lost_s\":", r.stall.median(), "}\n");
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

}  // namespace

absl::Status RunCheckpoint(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  flags.AddCount("ranks", &o.ranks, 1, 1024, "ranks, which are threads");
  flags.AddCount("stage", &o.stage, 0, 3, "stage of the optimizer");
  flags.AddCount("elements", &o.elements, 1, kMost, "elements of each unit");
  flags.AddCount("units", &o.units, 1, 1 << 20, "units of the model");
  flags.AddCount("repeats", &o.repeats, 1, kMost, "checkpoints of each kind");
  flags.AddCount("compute_ms", &o.compute_ms, 0, 60'000,
                 "milliseconds of a step in which the host waits for a device");
  flags.AddChoice("dtype", &o.dtype, {"bf16", "fp32"}, "of weights and gradients");
  flags.AddText("folder", &o.folder, "FOLDER", "folder on the disk to measure");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object");
  ZERO_RETURN_IF_ERROR(flags.Parse(arguments));
  if (flags.help()) {
    std::printf("usage: zero-bench checkpoint [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_ASSIGN_OR_RETURN(const DType dtype, ParseDType(o.dtype));
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  const StageModel model{o.units, o.elements, dtype};
  ZERO_ASSIGN_OR_RETURN(
      const Plan plan, MakePlan(StageRank::ConfigOf(model, static_cast<int>(o.stage)), model.Make(),
                                static_cast<int>(o.ranks)));
  ZERO_RETURN_IF_ERROR(support::CheckMemory(o.ranks, 2.0 * static_cast<double>(plan.total_bytes()),
                                            HostMemoryLimit()));
  ZERO_ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Create(o.folder));
  Results results;
  LocalWorld world(static_cast<int>(o.ranks));
  ZERO_RETURN_IF_ERROR(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    Bench bench(o, workspace.path(), group, &results);
    return bench.Run(model);
  }));
  Print(o, results);
  return o.json.empty() ? absl::OkStatus() : WriteJson(o, results);
}

}  // namespace zero::bench
