// zero-bench offload: what an offloaded step is made of, each part beside what the machine can do.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/json_file.h"
#include "bench/machine.h"
#include "bench/offload_disk.h"
#include "bench/offload_link.h"
#include "bench/offload_state.h"
#include "bench/offload_update.h"
#include "bench/subcommand.h"
#include "bench/workspace.h"
#include "device/host_memory.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "examples/support/memory.h"
#include "kernels/simd_targets.h"

namespace zero::bench {
namespace {

struct Options {
  std::string part = "update";
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  int64_t elements = 1 << 26;
  int64_t repeats = 9;
  int64_t units = 8;
  int64_t piece_elements = Offload().piece_elements;
  int64_t buffer_count = Offload().buffer_count;
  std::string gradients = "fp32";
  double link_gbps = 2;
  bool check_overflow = true;
  std::string folder = ".";
  std::string json;
};

double PerParameter(const Options& o, double seconds) {
  return seconds * 1e9 / static_cast<double>(o.elements);
}

absl::Status Close(const Options& o, std::ofstream& file) {
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

void PrintUpdates(const Options& o, const UpdateTimes& times) {
  std::printf("%s\n%lld threads, SIMD %s, %lld parameters, %lld interleaved repeats\n",
              CpuName().c_str(), static_cast<long long>(o.threads), SimdTargetName().c_str(),
              static_cast<long long>(o.elements), static_cast<long long>(o.repeats));
  std::printf(
      "AdamW of bf16 weights over records of offloaded states, every result equal to the\n");
  std::printf("scalar formulas, bit for bit; medians, and the worst repeat\n");
  std::printf("%% triad: speed as a share of the streamed triads' before and after it\n");
  std::printf("x fp32: time beside the fp32 master's with such gradients, in the same repeat\n\n");
  std::printf("%-9s %-7s %7s %8s %8s %7s %8s %6s %7s %6s\n", "gradients", "master", "B/param",
              "ns/param", "worst", "GB/s", "% triad", "worst", "x fp32", "worst");
  const double triad = times.triad_seconds.median();
  std::printf("%-17s %7.0f %8.3f %8.3f %7.1f\n", "triad, streamed", times.triad_bytes,
              PerParameter(o, triad), PerParameter(o, times.triad_seconds.max()),
              times.triad_bytes / PerParameter(o, triad));
  for (const UpdateRow& row : times.rows) {
    const double ns = PerParameter(o, row.seconds.median());
    std::printf("%-9s %-7s %7.0f %8.3f %8.3f %7.1f %8.0f %6.0f %7.2f %6.2f\n",
                row.gradients.c_str(), row.masters.c_str(), row.bytes, ns,
                PerParameter(o, row.seconds.max()), row.bytes / ns, 100 * row.shares.median(),
                100 * row.shares.min(), row.to_fp32.median(), row.to_fp32.max());
  }
}

absl::Status WriteUpdates(const Options& o, const UpdateTimes& times) {
  std::ofstream file(o.json);
  for (const UpdateRow& row : times.rows) {
    file << absl::StrCat("{\"bench\":\"offload\",\"part\":\"update\",\"cpu\":\"", CpuName(),
                         "\",\"threads\":", o.threads, ",\"simd\":\"", SimdTargetName(),
                         "\",\"parameters\":", o.elements, ",\"repeats\":", o.repeats)
         << absl::StrCat(",\"gradients\":\"", row.gradients, "\",\"master\":\"", row.masters,
                         "\",\"bytes_per_parameter\":", row.bytes,
                         ",\"median_ns\":", PerParameter(o, row.seconds.median()),
                         ",\"min_ns\":", PerParameter(o, row.seconds.min()),
                         ",\"max_ns\":", PerParameter(o, row.seconds.max()))
         << absl::StrCat(",\"triad_ns\":", PerParameter(o, times.triad_seconds.median()),
                         ",\"percent_of_triad\":", 100 * row.shares.median(),
                         ",\"worst_percent_of_triad\":", 100 * row.shares.min(),
                         ",\"times_fp32_master\":", row.to_fp32.median(), ",\"verified\":true}\n");
  }
  return Close(o, file);
}

void PrintMachine(const Options& o, const StageModel& model) {
  std::printf("%s\n%lld threads, %lld units of %lld bf16 parameters, pieces of %lld, %lld slots, ",
              CpuName().c_str(), static_cast<long long>(o.threads),
              static_cast<long long>(model.units), static_cast<long long>(model.elements),
              static_cast<long long>(o.piece_elements), static_cast<long long>(o.buffer_count));
  std::printf("gradients in %s, %lld repeats\n", o.gradients.c_str(),
              static_cast<long long>(o.repeats));
}

DiskRun DiskRunOf(const Options& o, const Workspace& workspace, DType gradients) {
  DiskRun run;
  run.folder = workspace.path();
  run.gradients = gradients;
  run.threads = o.threads;
  run.repeats = o.repeats;
  run.piece_elements = o.piece_elements;
  run.buffer_count = o.buffer_count;
  return run;
}

absl::Status RunState(const Options& o, const StageModel& model, DType gradients) {
  ZERO_ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Create(o.folder));
  ZERO_ASSIGN_OR_RETURN(const std::vector<StateRow> rows,
                        MeasureDiskState(model, DiskRunOf(o, workspace, gradients)));
  PrintMachine(o, model);
  std::printf("stage 3, states, gradients and weights on the disk of %s, checkpoints too\n",
              o.folder.c_str());
  std::printf(
      "%% plain: speed as a share of what plain requests to another file, before and after,\n");
  std::printf("do one way, or both ways at once\n\n");
  std::printf("%-26s %9s %9s %9s %9s %9s %9s %6s\n", "", "MB read", "written", "median s", "min s",
              "max s", "% plain", "worst");
  std::ofstream file;
  if (!o.json.empty()) file.open(o.json);
  for (const StateRow& row : rows) {
    std::printf("%-26s %9.1f %9.1f %9.3f %9.3f %9.3f %9.0f %6.0f\n", row.what.c_str(),
                static_cast<double>(row.read) / 1e6, static_cast<double>(row.written) / 1e6,
                row.seconds.median(), row.seconds.min(), row.seconds.max(),
                100 * row.shares.median(), 100 * row.shares.min());
    file << absl::StrCat("{\"bench\":\"offload\",\"part\":\"state\",\"cpu\":\"", CpuName(),
                         "\",\"units\":", model.units, ",\"elements\":", model.elements,
                         ",\"gradients\":\"", o.gradients, "\",\"repeats\":", o.repeats)
         << absl::StrCat(",\"what\":\"", row.what, "\",\"read_bytes\":", row.read,
                         ",\"written_bytes\":", row.written, ",\"median_s\":", row.seconds.median(),
                         ",\"percent_of_plain\":", 100 * row.shares.median(),
                         ",\"worst_percent_of_plain\":", 100 * row.shares.min(), "}\n");
  }
  return o.json.empty() ? absl::OkStatus() : Close(o, file);
}

absl::Status RunDisk(const Options& o, const StageModel& model, DType gradients) {
  ZERO_ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Create(o.folder));
  const DiskRun run = DiskRunOf(o, workspace, gradients);
  ZERO_ASSIGN_OR_RETURN(const DiskTimes times, MeasureDiskSteps(model, run));
  const double bytes = static_cast<double>(times.read + times.written);
  PrintMachine(o, model);
  std::printf("AdamW in stage 3, states, gradients and weights on the disk of %s\n",
              o.folder.c_str());
  if (!times.alone.note.empty()) std::printf("%s\n", times.alone.note.c_str());
  std::printf("plain requests to another file: %.2f GB/s read, %.2f written\n",
              times.alone.read / 1e9, times.alone.write / 1e9);
  std::printf("a step reads %.1f MB and writes %.1f MB: %.1f ms (%.1f to %.1f), %.2f GB/s\n",
              static_cast<double>(times.read) / 1e6, static_cast<double>(times.written) / 1e6,
              times.seconds.median() * 1e3, times.seconds.min() * 1e3, times.seconds.max() * 1e3,
              bytes / times.seconds.median() / 1e9);
  std::printf(
      "plain requests to the same file, as many both ways at once: %.2f GB/s (%.2f to %.2f)\n",
      times.plain.median() / 1e9, times.plain.min() / 1e9, times.plain.max() / 1e9);
  std::printf("%% of those before and after: %.0f, worst %.0f\n", 100 * times.shares.median(),
              100 * times.shares.min());
  if (o.json.empty()) return absl::OkStatus();
  std::ofstream file(o.json);
  file << absl::StrCat("{\"bench\":\"offload\",\"part\":\"disk\",\"cpu\":\"", CpuName(),
                       "\",\"threads\":", o.threads, ",\"units\":", model.units,
                       ",\"elements\":", model.elements, ",\"gradients\":\"", o.gradients, "\"",
                       ",\"repeats\":", o.repeats)
       << absl::StrCat(
              ",\"piece_elements\":", o.piece_elements, ",\"buffer_count\":", o.buffer_count,
              ",\"read_bytes\":", times.read, ",\"written_bytes\":", times.written,
              ",\"median_ms\":", times.seconds.median() * 1e3,
              ",\"min_ms\":", times.seconds.min() * 1e3, ",\"max_ms\":", times.seconds.max() * 1e3)
       << absl::StrCat(",\"GBps\":", bytes / times.seconds.median() / 1e9,
                       ",\"plain_GBps\":", times.plain.median() / 1e9,
                       ",\"percent_of_plain\":", 100 * times.shares.median(),
                       ",\"worst_percent_of_plain\":", 100 * times.shares.min(), "}\n");
  return Close(o, file);
}

absl::Status RunLink(const Options& o, const StageModel& model, DType gradients) {
  LinkRun run;
  run.bytes_per_second = o.link_gbps * 1e9;
  run.gradients = gradients;
  run.check_overflow = o.check_overflow;
  run.threads = o.threads;
  run.repeats = o.repeats;
  run.piece_elements = o.piece_elements;
  run.buffer_count = o.buffer_count;
  ZERO_ASSIGN_OR_RETURN(const LinkTimes times, MeasureLinkSteps(model, run));
  PrintMachine(o, model);
  std::printf("AdamW in stage 2, states and gradients on the host, %g GB/s each way\n",
              o.link_gbps);
  std::printf(
      "without compute: gradients out and decision %.1f ms, updates and weights back %.1f ms\n",
      times.out.median() * 1e3, times.back.median() * 1e3);
  std::printf("compute: a third of it forward; larger: of compute and the step without it\n");
  std::printf("overlap: 1 - (step - compute) / step without it\n");
  std::printf("%s\n\n", o.check_overflow
                            ? "bound: updates begin when the last gradient is there, and "
                              "overlap with forward only"
                            : "bound: as larger, since units step during backward");
  std::printf("%10s %8s %8s %7s %9s %6s %6s\n", "compute ms", "step ms", "worst", "/larger",
              "overlap %", "worst", "/bound");
  std::ofstream file;
  if (!o.json.empty()) file.open(o.json);
  for (const LinkRow& row : times.rows) {
    std::printf("%10.1f %8.1f %8.1f %7.2f %9.0f %6.0f %6.2f\n", row.compute.median() * 1e3,
                row.step.median() * 1e3, row.step.max() * 1e3, row.to_larger.median(),
                100 * row.overlap.median(), 100 * row.overlap.min(), row.to_bound.median());
    file << absl::StrCat("{\"bench\":\"offload\",\"part\":\"link\",\"cpu\":\"", CpuName(),
                         "\",\"threads\":", o.threads, ",\"units\":", model.units,
                         ",\"elements\":", model.elements, ",\"gradients\":\"", o.gradients, "\"",
                         ",\"check_overflow\":", o.check_overflow ? "true" : "false",
                         ",\"repeats\":", o.repeats)
         << absl::StrCat(",\"link_GBps\":", o.link_gbps, ",\"out_ms\":", times.out.median() * 1e3,
                         ",\"back_ms\":", times.back.median() * 1e3,
                         ",\"compute_ms\":", row.compute.median() * 1e3,
                         ",\"step_ms\":", row.step.median() * 1e3)
         << absl::StrCat(",\"times_larger\":", row.to_larger.median(),
                         ",\"overlap\":", row.overlap.median(),
                         ",\"worst_overlap\":", row.overlap.min(),
                         ",\"times_bound\":", row.to_bound.median(), "}\n");
  }
  return o.json.empty() ? absl::OkStatus() : Close(o, file);
}

}  // namespace

absl::Status RunOffload(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  flags.AddChoice(
      "part", &o.part, {"update", "disk", "state", "link"},
      "update: the host's updates, beside a triad; disk: steps of an optimizer that lies "
      "on a disk, beside plain requests; state: filling, saving and loading it; link: steps with "
      "states on the host, beside a "
      "trainer that computes");
  flags.AddCount("threads", &o.threads, 1, 4096, "threads of the updates and of the triad");
  flags.AddCount("elements", &o.elements, 64, int64_t{1} << 40, "parameters, rounded up to 128");
  flags.AddCount("repeats", &o.repeats, 1, kMost, "times that each is measured");
  flags.AddCount("units", &o.units, 1, 1 << 20,
                 "disk, state, link: units that the parameters are cut into");
  flags.AddCount("piece_elements", &o.piece_elements, 2048, int64_t{1} << 40,
                 "disk, state, link: elements that move at once, a multiple of 2048");
  flags.AddCount("buffer_count", &o.buffer_count, 1, 1 << 20,
                 "disk, state, link: pieces on their way");
  flags.AddChoice("gradients", &o.gradients, {"fp32", "bf16"},
                  "disk, state, link: dtype that gradients are stored in");
  flags.AddNumber("link_gbps", &o.link_gbps, 1e-3, 1e6,
                  "link: 10^9 bytes a second between host and device, each way");
  flags.AddSwitch("check_overflow", &o.check_overflow,
                  "link: inf or NaN skips a step; false: units step during backward");
  flags.AddText("folder", &o.folder, "FOLDER", "disk, state: folder on the disk to measure");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object a row");
  ZERO_RETURN_IF_ERROR(flags.Parse(arguments));
  if (flags.help()) {
    std::printf("usage: zero-bench offload [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  o.elements = (o.elements + 127) / 128 * 128;
  ZERO_ASSIGN_OR_RETURN(const DType gradients, ParseDType(o.gradients));
  const StageModel model{o.units, (o.elements + o.units - 1) / o.units, DType::kBF16};
  if (o.part == "disk") return RunDisk(o, model, gradients);
  if (o.part == "state") return RunState(o, model, gradients);
  if (o.part == "link") return RunLink(o, model, gradients);
  ZERO_RETURN_IF_ERROR(support::CheckMemory(1, UpdateBytes(o.elements), HostMemoryLimit()));
  ZERO_ASSIGN_OR_RETURN(const UpdateTimes times, MeasureUpdates(o.elements, o.threads, o.repeats));
  PrintUpdates(o, times);
  return o.json.empty() ? absl::OkStatus() : WriteUpdates(o, times);
}

}  // namespace zero::bench
