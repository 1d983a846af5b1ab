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
#include "bench/offload_update.h"
#include "bench/subcommand.h"
#include "device/host_memory.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "examples/support/memory.h"
#include "kernels/simd_targets.h"

namespace zero::bench {
namespace {

struct Options {
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  int64_t elements = 1 << 26;
  int64_t repeats = 9;
  std::string json;
};

double PerParameter(const Options& o, double seconds) {
  return seconds * 1e9 / static_cast<double>(o.elements);
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
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

}  // namespace

absl::Status RunOffload(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  flags.AddCount("threads", &o.threads, 1, 4096, "threads of the updates and of the triad");
  flags.AddCount("elements", &o.elements, 64, int64_t{1} << 40, "parameters, rounded up to 128");
  flags.AddCount("repeats", &o.repeats, 1, kMost, "times that each is measured");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object a row");
  ZERO_RETURN_IF_ERROR(flags.Parse(arguments));
  if (flags.help()) {
    std::printf("usage: zero-bench offload [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  o.elements = (o.elements + 127) / 128 * 128;
  ZERO_RETURN_IF_ERROR(support::CheckMemory(1, UpdateBytes(o.elements), HostMemoryLimit()));
  ZERO_ASSIGN_OR_RETURN(const UpdateTimes times, MeasureUpdates(o.elements, o.threads, o.repeats));
  PrintUpdates(o, times);
  return o.json.empty() ? absl::OkStatus() : WriteUpdates(o, times);
}

}  // namespace zero::bench
