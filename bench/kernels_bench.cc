// zero-bench kernels: each kernel of a step, verified, then timed beside the machine's triad.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/cuda_kernels.h"
#include "bench/json_file.h"
#include "bench/kernel_cases.h"
#include "bench/machine.h"
#include "bench/memory_limit.h"
#include "bench/samples.h"
#include "bench/subcommand.h"
#include "device/host_device.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "kernels/simd_targets.h"

namespace zero::bench {
namespace {

struct Options {
  std::string device = "host";
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  int64_t elements = 1 << 24;
  int64_t repeats = 9;
  std::string simd = "best";
  std::string json;
};

constexpr double kTriadBytes = 12;

// One line of the table.
struct Row {
  std::string kernel;
  std::string types;
  double bytes = 0;
  Samples samples;

  double NsPerElement(const Options& o) const {
    return samples.median() * 1e9 / static_cast<double>(o.elements);
  }
  double GBps(const Options& o) const { return bytes / NsPerElement(o); }
};

absl::Status Verify(const Stream& stream, const KernelCase& kernel) {
  ZERO_RETURN_IF_ERROR(kernel.prepare());
  ZERO_RETURN_IF_ERROR(kernel.enqueue(stream));
  ZERO_RETURN_IF_ERROR(stream.Synchronize());
  const std::string difference = kernel.difference();
  if (difference.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(kernel.kernel, " (", kernel.types, ") is wrong: ", difference));
}

absl::Status VerifyTriads(ThreadPool* pool, int64_t n, KernelCases* cases) {
  for (const auto triad : {StreamedTriad, PlainTriad}) {
    float* const a = cases->triad(0);
    for (int64_t i = 0; i < n; ++i) a[i] = 0;
    triad(pool, a, cases->triad(1), cases->triad(2), n);
    for (int64_t i = 0; i < n; ++i) {
      const float product = 3 * cases->triad(2)[i];
      if (a[i] != cases->triad(1)[i] + product) return absl::InternalError("a triad is wrong");
    }
  }
  return absl::OkStatus();
}

// Each repeat runs everything once, so that a slow moment of the machine meets all rows alike.
absl::Status Measure(const Stream& stream, ThreadPool* pool, const Options& o, KernelCases* cases,
                     std::vector<Row>* rows) {
  *rows = {{"triad, streamed", "fp32", kTriadBytes, {}}, {"triad, plain", "fp32", kTriadBytes, {}}};
  for (const KernelCase& c : cases->cases()) rows->push_back({c.kernel, c.types, c.bytes, {}});
  for (int64_t repeat = 0; repeat <= o.repeats; ++repeat) {
    for (size_t i = 0; i < rows->size(); ++i) {
      const double start = Now();
      if (i < 2) {
        (i == 0 ? StreamedTriad : PlainTriad)(pool, cases->triad(0), cases->triad(1),
                                              cases->triad(2), o.elements);
      } else {
        ZERO_RETURN_IF_ERROR(cases->cases()[i - 2].enqueue(stream));
        ZERO_RETURN_IF_ERROR(stream.Synchronize());
      }
      if (repeat > 0) (*rows)[i].samples.Add(Now() - start);  // the first round warms up
    }
  }
  return absl::OkStatus();
}

void PrintTable(const Options& o, const std::vector<Row>& rows) {
  std::printf("%s\n%lld threads, SIMD %s, %lld elements, median of %lld interleaved repeats\n",
              CpuName().c_str(), static_cast<long long>(o.threads), SimdTargetName().c_str(),
              static_cast<long long>(o.elements), static_cast<long long>(o.repeats));
  std::printf("every result equal to the scalar formulas, bit for bit\n\n");
  std::printf("%-16s %-17s %6s %8s %8s %8s %7s %8s\n", "kernel", "types", "B/el", "ns/el", "min",
              "max", "GB/s", "% triad");
  const double limit = rows[0].GBps(o);
  const double scale = 1e9 / static_cast<double>(o.elements);
  for (const Row& row : rows) {
    std::printf("%-16s %-17s %6.0f %8.3f %8.3f %8.3f %7.1f %8.0f\n", row.kernel.c_str(),
                row.types.c_str(), row.bytes, row.NsPerElement(o), row.samples.min() * scale,
                row.samples.max() * scale, row.GBps(o), 100 * row.GBps(o) / limit);
  }
}

absl::Status WriteJson(const Options& o, const std::vector<Row>& rows) {
  std::ofstream file(o.json);
  const double limit = rows[0].GBps(o);
  const double scale = 1e9 / static_cast<double>(o.elements);
  for (const Row& row : rows) {
    file << absl::StrCat("{\"bench\":\"kernels\",\"device\":\"host\",\"cpu\":\"", CpuName(),
                         "\",\"threads\":", o.threads, ",\"simd\":\"", SimdTargetName(),
                         "\",\"elements\":", o.elements, ",\"repeats\":", o.repeats)
         << absl::StrCat(
                ",\"kernel\":\"", row.kernel, "\",\"types\":\"", row.types,
                "\",\"bytes_per_element\":", row.bytes, ",\"median_ns\":", row.NsPerElement(o),
                ",\"min_ns\":", row.samples.min() * scale,
                ",\"max_ns\":", row.samples.max() * scale, ",\"GBps\":", row.GBps(o),
                ",\"percent_of_triad\":", 100 * row.GBps(o) / limit, ",\"verified\":true}\n");
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

// Correctness is the test suites' business there: arrays of a size that is worth timing are not
// brought back.
absl::Status RunOnCuda(const Options& o) {
  ZERO_ASSIGN_OR_RETURN(const CudaKernelTimes times, TimeCudaKernels(o.elements, o.repeats));
  std::printf(
      "%s\n%lld elements, median of %lld interleaved repeats; results are not verified "
      "here\n\n",
      times.gpu.c_str(), static_cast<long long>(o.elements), static_cast<long long>(o.repeats));
  std::printf("%-16s %-17s %6s %9s %9s %9s %8s %7s\n", "kernel", "types", "B/el", "us", "min",
              "max", "GB/s", "% copy");
  std::ofstream file;
  if (!o.json.empty()) file.open(o.json);
  const auto speed = [&o](const CudaKernelTime& row) {
    return row.bytes * static_cast<double>(o.elements) / row.samples.median() / 1e9;
  };
  const double copy = speed(times.rows[0]);
  for (const CudaKernelTime& row : times.rows) {
    const double share = 100 * speed(row) / copy;
    std::printf("%-16s %-17s %6.0f %9.1f %9.1f %9.1f %8.1f %7.0f\n", row.kernel.c_str(),
                row.types.c_str(), row.bytes, row.samples.median() * 1e6, row.samples.min() * 1e6,
                row.samples.max() * 1e6, speed(row), share);
    file << absl::StrCat("{\"bench\":\"kernels\",\"device\":\"cuda\",\"gpu\":\"", times.gpu,
                         "\",\"elements\":", o.elements, ",\"repeats\":", o.repeats,
                         ",\"kernel\":\"", row.kernel, "\",\"types\":\"", row.types)
         << absl::StrCat("\",\"bytes_per_element\":", row.bytes,
                         ",\"median_us\":", row.samples.median() * 1e6,
                         ",\"min_us\":", row.samples.min() * 1e6,
                         ",\"max_us\":", row.samples.max() * 1e6, ",\"GBps\":", speed(row),
                         ",\"percent_of_copy\":", share, ",\"verified\":false}\n");
  }
  file.close();
  if (o.json.empty() || file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

}  // namespace

absl::Status RunKernels(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  flags.AddChoice("device", &o.device, {"host", "cuda"},
                  "where they run; cuda: against a copy on the GPU");
  flags.AddCount("threads", &o.threads, 1, 4096, "threads of the kernels and of the triad");
  flags.AddCount("elements", &o.elements, 64, kMost, "elements of each array, rounded up to 64");
  flags.AddCount("repeats", &o.repeats, 1, kMost, "times that each kernel is measured");
  flags.AddChoice("simd", &o.simd, {"best", "avx512", "avx2", "sse4", "ssse3", "scalar"},
                  "widest SIMD target");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object a row");
  ZERO_RETURN_IF_ERROR(flags.Parse(arguments));
  if (flags.help()) {
    std::printf("usage: zero-bench kernels [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  ZERO_RETURN_IF_ERROR(LimitSimdTargets(o.simd));
  o.elements = (o.elements + 63) / 64 * 64;
  if (o.device == "cuda") return RunOnCuda(o);

  ThreadPool pool(static_cast<int>(o.threads));
  HostDevice::Options options;
  options.pool = &pool;
  HostDevice device(options);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream("bench"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<KernelCases> cases,
                        KernelCases::Create(&device, o.elements));
  for (const KernelCase& kernel : cases->cases()) ZERO_RETURN_IF_ERROR(Verify(*stream, kernel));
  ZERO_RETURN_IF_ERROR(VerifyTriads(&pool, o.elements, cases.get()));
  std::vector<Row> rows;
  ZERO_RETURN_IF_ERROR(Measure(*stream, &pool, o, cases.get(), &rows));
  PrintTable(o, rows);
  return o.json.empty() ? absl::OkStatus() : WriteJson(o, rows);
}

}  // namespace zero::bench
