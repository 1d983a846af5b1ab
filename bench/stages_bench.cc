// zero-bench stages: stages 0 to 3 side by side on a model that computes nothing: bytes per rank
// and on the wire beside the plan, and the time of a step beside the speed of the machine's memory.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
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
#include "bench/memory_limit.h"
#include "bench/samples.h"
#include "bench/stage_rank.h"
#include "bench/subcommand.h"
#include "collectives/local_group.h"
#include "device/host_memory.h"
#include "device/status.h"
#include "examples/support/flags.h"
#include "examples/support/memory.h"

namespace zero::bench {
namespace {

constexpr int kStages = 4;
constexpr int kCheckedSteps = 2;
constexpr int64_t kTriadElements = 1 << 23;
constexpr double kTriadBytes = 12.0 * kTriadElements;

struct Options {
  int64_t ranks = 4;
  int64_t elements = 1 << 20;
  int64_t units = 4;
  int64_t repeats = 9;
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::string dtype = "bf16";
  std::string json;
};

// What rank 0 saw of one stage.
struct Row {
  Plan plan;
  MemoryTable memory = {};
  WireBytes wire;  // of one step
  Samples seconds;

  double MovedBytes(const Options& o) const {
    return static_cast<double>(o.ranks) * bench::MovedBytes(plan);
  }
  double GBps(const Options& o) const { return MovedBytes(o) / seconds.median() / 1e9; }
};

struct Results {
  Row rows[kStages];
  Samples triad_seconds;
  double TriadGBps() const { return kTriadBytes / triad_seconds.median() / 1e9; }
};

// Weights of stages 1 to 3 must be those of stage 0, bit for bit, and not the initial ones.
absl::Status Verify(const Options& o, std::vector<std::unique_ptr<StageRank>>& stages) {
  for (int i = 0; i < kCheckedSteps; ++i) {
    for (const auto& stage : stages) ZERO_RETURN_IF_ERROR(stage->Step());
  }
  for (int u = 0; u < static_cast<int>(o.units); ++u) {
    ZERO_ASSIGN_OR_RETURN(const std::vector<float> first, stages[0]->Weights(u));
    bool changed = false;
    for (size_t i = 0; i < first.size(); ++i) {
      changed = changed || first[i] != InitialWeight(static_cast<int64_t>(i));
    }
    if (!changed) return absl::InternalError(absl::StrCat("unit ", u, " did not change"));
    for (int s = 1; s < kStages; ++s) {
      ZERO_ASSIGN_OR_RETURN(const std::vector<float> weights, stages[s]->Weights(u));
      if (std::memcmp(first.data(), weights.data(), first.size() * sizeof(float)) == 0) continue;
      return absl::InternalError(
          absl::StrCat("weights of unit ", u, " differ between stages 0 and ", s));
    }
  }
  return absl::OkStatus();
}

WireBytes BytesOf(const TrafficTable& after, const TrafficTable& before) {
  WireBytes bytes;
  for (const auto& [name, traffic] : after) {
    const auto old = before.find(name);
    const int64_t sent = traffic.bytes - (old == before.end() ? 0 : old->second.bytes);
    if (sent != 0) bytes[name] = sent;
  }
  return bytes;
}

// Accounted bytes must be the planned ones.
absl::Status CheckPlan(int stage, const Row& row) {
  for (int c = 0; c < kMemoryCategories; ++c) {
    if (row.memory[c].current == row.plan.bytes[c]) continue;
    return absl::InternalError(
        absl::StrCat("stage ", stage, ": ", Name(static_cast<MemoryCategory>(c)), " uses ",
                     row.memory[c].current, " bytes, the plan says ", row.plan.bytes[c]));
  }
  for (const auto& [name, planned] : row.plan.step_wire(1)) {
    const auto sent = row.wire.find(name);
    const int64_t bytes = sent == row.wire.end() ? 0 : sent->second;
    if (bytes == planned) continue;
    return absl::InternalError(absl::StrCat("stage ", stage, ": ", name, " sent ", bytes,
                                            " bytes, the plan says ", planned));
  }
  return absl::OkStatus();
}

// Three arrays for the limit of the machine, and the threads to run it.
class Triad {
 public:
  explicit Triad(int64_t threads) : pool_(static_cast<int>(threads)) {}
  absl::Status Allocate() {
    ZERO_ASSIGN_OR_RETURN(memory_, device_.Allocate(3 * kTriadElements * 4, MemoryCategory::kOther,
                                                    "arrays of the triad"));
    std::fill_n(memory_.as<float>(), 3 * kTriadElements, 1.0f);
    return absl::OkStatus();
  }
  void Run() {
    float* const a = memory_.as<float>();
    StreamedTriad(&pool_, a, a + kTriadElements, a + 2 * kTriadElements, kTriadElements);
  }

 private:
  ThreadPool pool_;
  HostDevice device_;
  Buffer memory_;
};

// Each repeat runs everything once, so that a slow moment of the machine meets all rows alike.
absl::Status Measure(const Options& o, ProcessGroup* group, Triad* triad,
                     std::vector<std::unique_ptr<StageRank>>& stages, Results* results) {
  const bool reports = group->rank() == 0;
  for (int64_t repeat = 0; repeat < o.repeats; ++repeat) {
    ZERO_RETURN_IF_ERROR(stages[0]->Meet());
    if (reports) {
      const double start = Now();
      triad->Run();
      results->triad_seconds.Add(Now() - start);
    }
    for (int s = 0; s < kStages; ++s) {
      ZERO_RETURN_IF_ERROR(stages[s]->Meet());
      const TrafficTable before = group->traffic();
      const double start = Now();
      ZERO_RETURN_IF_ERROR(stages[s]->Step());
      ZERO_RETURN_IF_ERROR(stages[s]->Meet());  // the slowest rank counts
      if (!reports) continue;
      Row& row = results->rows[s];
      row.seconds.Add(Now() - start);
      row.wire = BytesOf(group->traffic(), before);
      row.memory = stages[s]->memory();
      row.plan = stages[s]->plan();
      ZERO_RETURN_IF_ERROR(CheckPlan(s, row));
    }
  }
  return absl::OkStatus();
}

void PrintLine(const std::string& label, const Results& results,
               const std::function<std::pair<std::string, std::string>(const Row&)>& cells) {
  std::printf("%-18s", label.c_str());
  for (const Row& row : results.rows) {
    const auto [measured, plan] = cells(row);
    std::printf(" %12s %12s", measured.c_str(), plan.c_str());
  }
  std::printf("\n");
}

void PrintTable(const Options& o, const Results& results) {
  std::printf("%s\n", CpuName().c_str());
  std::printf("%lld ranks (threads), %lld units of %lld elements, %s, AdamW, 1 micro-batch, ",
              static_cast<long long>(o.ranks), static_cast<long long>(o.units),
              static_cast<long long>(o.elements), o.dtype.c_str());
  std::printf("%lld interleaved repeats\n", static_cast<long long>(o.repeats));
  std::printf("weights equal over the stages, bit for bit; bytes equal to the plan\n\n");
  std::printf("%-18s", "");
  for (int s = 0; s < kStages; ++s) std::printf(" %17s %d %5s", "stage", s, "");
  std::printf("\n");
  PrintLine("bytes per rank", results, [](const Row&) { return std::pair("used", "plan"); });
  for (int c = 0; c < kMemoryCategories; ++c) {
    const bool shown = std::any_of(std::begin(results.rows), std::end(results.rows),
                                   [c](const Row& row) { return row.memory[c].peak > 0; });
    if (!shown) continue;
    PrintLine(Name(static_cast<MemoryCategory>(c)), results, [c](const Row& row) {
      return std::pair(absl::StrCat(row.memory[c].current), absl::StrCat(row.plan.bytes[c]));
    });
  }
  PrintLine("total", results, [](const Row& row) {
    int64_t total = 0;
    for (const MemoryUse& use : row.memory) total += use.current;
    return std::pair(absl::StrCat(total), absl::StrCat(row.plan.total_bytes()));
  });
  PrintLine("sent in a step", results, [](const Row&) { return std::pair("sent", "plan"); });
  for (const char* name : {kReduceGradients, kGatherGradients, kGatherWeights, kControl}) {
    PrintLine(name, results, [name](const Row& row) {
      const auto sent = row.wire.find(name);
      const WireBytes planned = row.plan.step_wire(1);
      const auto plan = planned.find(name);
      return std::pair(absl::StrCat(sent == row.wire.end() ? 0 : sent->second),
                       absl::StrCat(plan == planned.end() ? 0 : plan->second));
    });
  }
  PrintLine("step ms, median", results, [](const Row& row) {
    return std::pair(absl::StrFormat("%.2f", row.seconds.median() * 1e3), "");
  });
  PrintLine("  min, max", results, [](const Row& row) {
    return std::pair(absl::StrFormat("%.2f", row.seconds.min() * 1e3),
                     absl::StrFormat("%.2f", row.seconds.max() * 1e3));
  });
  PrintLine("moved MB, GB/s", results, [&](const Row& row) {
    return std::pair(absl::StrFormat("%.1f", row.MovedBytes(o) / 1e6),
                     absl::StrFormat("%.1f", row.GBps(o)));
  });
  PrintLine("% of triad", results, [&](const Row& row) {
    return std::pair(absl::StrFormat("%.0f", 100 * row.GBps(o) / results.TriadGBps()), "");
  });
  std::printf("\nstreamed triad, %lld threads: %.1f GB/s (%.1f to %.1f)\n",
              static_cast<long long>(o.threads), results.TriadGBps(),
              kTriadBytes / results.triad_seconds.max() / 1e9,
              kTriadBytes / results.triad_seconds.min() / 1e9);
  std::printf("moved: read and written by all ranks, lines read only to be overwritten left out\n");
}

absl::Status WriteJson(const Options& o, const Results& results) {
  std::ofstream file(o.json);
  for (int s = 0; s < kStages; ++s) {
    const Row& row = results.rows[s];
    file << absl::StrCat("{\"bench\":\"stages\",\"device\":\"host\",\"cpu\":\"", CpuName(),
                         "\",\"threads\":", o.threads, ",\"ranks\":", o.ranks,
                         ",\"units\":", o.units, ",\"elements\":", o.elements, ",\"dtype\":\"",
                         o.dtype, "\",\"repeats\":", o.repeats, ",\"stage\":", s);
    file << ",\"memory\":{";
    const char* separator = "";
    for (int c = 0; c < kMemoryCategories; ++c) {
      if (row.memory[c].peak == 0) continue;
      file << absl::StrCat(separator, "\"", Name(static_cast<MemoryCategory>(c)),
                           "\":{\"current\":", row.memory[c].current,
                           ",\"plan\":", row.plan.bytes[c], "}");
      separator = ",";
    }
    file << "},\"wire\":{";
    separator = "";
    for (const auto& [name, bytes] : row.plan.step_wire(1)) {
      const auto sent = row.wire.find(name);
      file << absl::StrCat(separator, "\"", name,
                           "\":{\"bytes\":", sent == row.wire.end() ? 0 : sent->second,
                           ",\"plan\":", bytes, "}");
      separator = ",";
    }
    file << absl::StrCat("},\"median_ms\":", row.seconds.median() * 1e3,
                         ",\"min_ms\":", row.seconds.min() * 1e3,
                         ",\"max_ms\":", row.seconds.max() * 1e3,
                         ",\"moved_bytes\":", row.MovedBytes(o), ",\"GBps\":", row.GBps(o))
         << absl::StrCat(",\"triad_GBps\":", results.TriadGBps(),
                         ",\"percent_of_triad\":", 100 * row.GBps(o) / results.TriadGBps(),
                         ",\"verified\":true}\n");
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

// All stages of all ranks are there at once; to compare weights a rank holds two units in fp32.
absl::Status CheckMemory(const Options& o, const StageModel& model) {
  const Model described = model.Make();
  double bytes = 2.0 * 4 * static_cast<double>(o.elements);
  for (int s = 0; s < kStages; ++s) {
    ZERO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(StageRank::ConfigOf(model, s), described,
                                                    static_cast<int>(o.ranks)));
    bytes += static_cast<double>(plan.total_bytes());
  }
  return support::CheckMemory(o.ranks, bytes, HostMemoryLimit());
}

absl::Status RunAll(const Options& o, DType dtype, Results* results) {
  const StageModel model{o.units, o.elements, dtype};
  ZERO_RETURN_IF_ERROR(CheckMemory(o, model));
  Triad triad(o.threads);
  ZERO_RETURN_IF_ERROR(triad.Allocate());
  // Ranks are threads already; what is left of the machine goes to their kernels.
  ThreadPool pool(static_cast<int>(std::max<int64_t>(1, o.threads / o.ranks)));
  ThreadPool* const shared = pool.threads() > 1 ? &pool : nullptr;
  LocalWorld world(static_cast<int>(o.ranks));
  return RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    std::vector<std::unique_ptr<StageRank>> stages;
    for (int s = 0; s < kStages; ++s) {
      ZERO_ASSIGN_OR_RETURN(auto stage, StageRank::Create(model, s, shared, group));
      stages.push_back(std::move(stage));
    }
    ZERO_RETURN_IF_ERROR(Verify(o, stages));
    return Measure(o, group, &triad, stages, results);
  });
}

}  // namespace

absl::Status RunStages(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  flags.AddCount("ranks", &o.ranks, 1, 4096, "ranks, which are threads");
  flags.AddCount("elements", &o.elements, 1, kMost, "elements of each unit");
  flags.AddCount("units", &o.units, 1, 1 << 20, "units of the model");
  flags.AddCount("repeats", &o.repeats, 1, kMost, "steps measured in each stage");
  flags.AddCount("threads", &o.threads, 1, 4096,
                 "threads of the triad, and of the kernels of all ranks");
  flags.AddChoice("dtype", &o.dtype, {"bf16", "fp32"}, "of weights and gradients");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object a stage");
  ZERO_RETURN_IF_ERROR(flags.Parse(arguments));
  if (flags.help()) {
    std::printf("usage: zero-bench stages [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_ASSIGN_OR_RETURN(const DType dtype, ParseDType(o.dtype));
  if (o.ranks > 1024) return absl::InvalidArgumentError("--ranks: at most 1024");
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  Results results;
  ZERO_RETURN_IF_ERROR(RunAll(o, dtype, &results));
  PrintTable(o, results);
  return o.json.empty() ? absl::OkStatus() : WriteJson(o, results);
}

}  // namespace zero::bench
