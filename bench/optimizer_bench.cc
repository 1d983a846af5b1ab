// zero-bench optimizer: the update of each optimizer with each kind of master, verified, then timed
// beside a triad that streams past the caches.
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
#include "bench/memory_limit.h"
#include "bench/optimizer_cases.h"
#include "bench/samples.h"
#include "bench/subcommand.h"
#include "device/host_device.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "kernels/simd_targets.h"

namespace zero::bench {
namespace {

struct Options {
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  int64_t elements = 1 << 24;
  int64_t repeats = 9;
  std::string simd = "best";
  std::string json;
};

constexpr double kTriadBytes = 12;

// One line of the table.
struct Row {
  std::string optimizer;
  std::string masters;
  double bytes = 0;
  Samples samples;
  Samples shares;  // of the triad beside it, of 1

  double Nanoseconds(const Options& o, double seconds) const {
    return seconds * 1e9 / static_cast<double>(o.elements);
  }
  double GBps(const Options& o) const { return bytes / Nanoseconds(o, samples.median()); }
};

absl::Status Verify(const Stream& stream, const OptimizerCases& cases) {
  for (const OptimizerCase& c : cases.cases()) {
    ZERO_ASSIGN_OR_RETURN(const std::string difference, c.difference(stream));
    if (!difference.empty()) {
      return absl::InternalError(
          absl::StrCat(c.optimizer, " (", c.masters, ") is wrong: ", difference));
    }
  }
  return absl::OkStatus();
}

// Each repeat runs everything once, and a triad before each row: its share is of the same moment.
absl::Status Measure(const Stream& stream, ThreadPool* pool, const Options& o,
                     OptimizerCases* cases, std::vector<Row>* rows) {
  *rows = {{"triad, streamed", "", kTriadBytes, {}, {}}};
  for (const OptimizerCase& c : cases->cases()) {
    rows->push_back({c.optimizer, c.masters, c.bytes, {}, {}});
  }
  for (int64_t repeat = 0; repeat <= o.repeats; ++repeat) {
    for (size_t i = 1; i < rows->size(); ++i) {
      const double start = Now();
      StreamedTriad(pool, cases->triad(0), cases->triad(1), cases->triad(2), o.elements);
      const double between = Now();
      ZERO_RETURN_IF_ERROR(cases->cases()[i - 1].enqueue(stream));
      ZERO_RETURN_IF_ERROR(stream.Synchronize());
      const double end = Now();
      if (repeat == 0) continue;  // the first round warms up
      Row& row = (*rows)[i];
      (*rows)[0].samples.Add(between - start);
      row.samples.Add(end - between);
      row.shares.Add(row.bytes / (end - between) * (between - start) / kTriadBytes);
    }
  }
  (*rows)[0].shares.Add(1);
  return absl::OkStatus();
}

void PrintTable(const Options& o, const std::vector<Row>& rows) {
  std::printf("%s\n%lld threads, SIMD %s, %lld parameters, median of %lld interleaved repeats\n",
              CpuName().c_str(), static_cast<long long>(o.threads), SimdTargetName().c_str(),
              static_cast<long long>(o.elements), static_cast<long long>(o.repeats));
  std::printf("every result equal to the scalar formulas, bit for bit\n");
  std::printf("%% triad: speed of an update as a share of the triad's that ran just before it\n\n");
  std::printf("%-16s %-19s %7s %8s %8s %8s %7s %8s\n", "optimizer", "master", "B/param", "ns/param",
              "min", "max", "GB/s", "% triad");
  for (const Row& row : rows) {
    std::printf("%-16s %-19s %7.0f %8.3f %8.3f %8.3f %7.1f %8.0f\n", row.optimizer.c_str(),
                row.masters.c_str(), row.bytes, row.Nanoseconds(o, row.samples.median()),
                row.Nanoseconds(o, row.samples.min()), row.Nanoseconds(o, row.samples.max()),
                row.GBps(o), 100 * row.shares.median());
  }
}

absl::Status WriteJson(const Options& o, const std::vector<Row>& rows) {
  std::ofstream file(o.json);
  for (const Row& row : rows) {
    file << absl::StrCat("{\"bench\":\"optimizer\",\"device\":\"host\",\"cpu\":\"", CpuName(),
                         "\",\"threads\":", o.threads, ",\"simd\":\"", SimdTargetName(),
                         "\",\"parameters\":", o.elements, ",\"repeats\":", o.repeats)
         << absl::StrCat(",\"optimizer\":\"", row.optimizer, "\",\"master\":\"", row.masters,
                         "\",\"bytes_per_parameter\":", row.bytes,
                         ",\"median_ns\":", row.Nanoseconds(o, row.samples.median()),
                         ",\"min_ns\":", row.Nanoseconds(o, row.samples.min()),
                         ",\"max_ns\":", row.Nanoseconds(o, row.samples.max()))
         << absl::StrCat(",\"GBps\":", row.GBps(o),
                         ",\"percent_of_triad\":", 100 * row.shares.median(),
                         ",\"verified\":true}\n");
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("cannot write ", o.json));
}

}  // namespace

absl::Status RunOptimizer(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  flags.AddCount("threads", &o.threads, 1, 4096, "threads of the updates and of the triad");
  flags.AddCount("elements", &o.elements, 64, kMost, "parameters, rounded up to 64");
  flags.AddCount("repeats", &o.repeats, 1, kMost, "times that each update is measured");
  flags.AddChoice("simd", &o.simd, {"best", "avx512", "avx2", "sse4", "ssse3", "scalar"},
                  "widest SIMD target");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object a row");
  ZERO_RETURN_IF_ERROR(flags.Parse(arguments));
  if (flags.help()) {
    std::printf("usage: zero-bench optimizer [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  ZERO_RETURN_IF_ERROR(LimitSimdTargets(o.simd));
  o.elements = (o.elements + 63) / 64 * 64;
  ThreadPool pool(static_cast<int>(o.threads));
  HostDevice::Options options;
  options.pool = &pool;
  HostDevice device(options);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream("bench"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<OptimizerCases> cases,
                        OptimizerCases::Create(&device, o.elements));
  ZERO_RETURN_IF_ERROR(Verify(*stream, *cases));
  std::vector<Row> rows;
  ZERO_RETURN_IF_ERROR(Measure(*stream, &pool, o, cases.get(), &rows));
  PrintTable(o, rows);
  return o.json.empty() ? absl::OkStatus() : WriteJson(o, rows);
}

}  // namespace zero::bench
