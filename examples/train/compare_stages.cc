#include "examples/train/compare_stages.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/status.h"
#include "examples/support/text.h"
#include "examples/train/cost.h"
#include "examples/train/run.h"
#include "examples/train/signals.h"
#include "zero/offload/offload_plan.h"

namespace zero::train {
namespace {

constexpr int kStages = 4;
constexpr int64_t kWarmUp = 2;  // steps of each run that are not timed

struct Measured {
  Cost plan;
  MemoryTable memory;
  WireBytes wire;  // of one step
  std::vector<double> seconds;

  double MedianSeconds() {
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
  }
};
using Stages = std::array<Measured, kStages>;

int64_t At(const WireBytes& wire, const std::string& name) {
  const auto found = wire.find(name);
  return found == wire.end() ? 0 : found->second;
}

// Bits of StopSignals, where some ended it.
absl::StatusOr<uint64_t> RunStage(const Job& job, Measured& measured) {
  Job run = job;
  RunEnd end;
  run.end = &end;
  run.report = [&measured](const StepReport& report) {
    measured.memory = report.memory;
    measured.wire = report.wire;
    if (report.step > kWarmUp) measured.seconds.push_back(report.seconds);
    return absl::OkStatus();
  };
  ZERO_RETURN_IF_ERROR(RunJob(run));
  return end.signals;
}

// Rows of kilobytes: the name, then what was used and what was planned in each stage.
class Table {
 public:
  void Title(const std::string& title) {
    std::cout << absl::StreamFormat("\n%-17s", title);
    for (int stage = 0; stage < kStages; ++stage) {
      std::cout << absl::StreamFormat("%15s", absl::StrCat("stage ", stage));
    }
    std::cout << absl::StreamFormat("\n%-17s", "");
    for (int stage = 0; stage < kStages; ++stage) std::cout << "   used   plan ";
    std::cout << '\n';
  }

  void Row(const std::string& name, const std::function<std::pair<int64_t, int64_t>(int)>& cell) {
    std::cout << absl::StreamFormat("%-17s", name);
    for (int stage = 0; stage < kStages; ++stage) {
      const auto [used, plan] = cell(stage);
      std::cout << absl::StreamFormat("%7s%7s%s", Kilobytes(used), Kilobytes(plan),
                                      used == plan ? " " : "!");
      if (used != plan && first_difference_.empty()) {
        first_difference_ =
            absl::StrCat(name, " of stage ", stage, ": ", used, " bytes, planned ", plan);
      }
    }
    std::cout << '\n';
  }

  const std::string& first_difference() const { return first_difference_; }

 private:
  static std::string Kilobytes(int64_t bytes) {
    return support::WithSeparators((bytes + 500) / 1000);
  }

  std::string first_difference_;
};

void PrintBytes(const Stages& stages, Table& table) {
  table.Title("kB per rank");
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto cell = [&](int stage) {
      return std::pair(stages[stage].memory[c].current, stages[stage].plan.memory[c]);
    };
    bool used = false;
    for (int stage = 0; stage < kStages; ++stage)
      used |= cell(stage) != std::pair<int64_t, int64_t>();
    if (used) table.Row(Name(static_cast<MemoryCategory>(c)), cell);
  }
  table.Row("all", [&](int stage) {
    std::pair<int64_t, int64_t> sum;
    for (int c = 0; c < kMemoryCategories; ++c) {
      sum.first += stages[stage].memory[c].current;
      sum.second += stages[stage].plan.memory[c];
    }
    return sum;
  });
}

void PrintWire(const Stages& stages, Table& table) {
  std::set<std::string> names;
  for (const Measured& stage : stages) {
    for (const auto& [name, bytes] : stage.wire) names.insert(name);
    for (const auto& [name, bytes] : stage.plan.wire) {
      if (bytes != 0) names.insert(name);
    }
  }
  table.Title("kB sent per step");
  for (const std::string& name : names) {
    table.Row(name, [&](int stage) {
      return std::pair(At(stages[stage].wire, name), At(stages[stage].plan.wire, name));
    });
  }
  table.Row("all", [&](int stage) {
    std::pair<int64_t, int64_t> sum;
    for (const std::string& name : names) {
      sum.first += At(stages[stage].wire, name);
      sum.second += At(stages[stage].plan.wire, name);
    }
    return sum;
  });
}

void PrintTimes(Stages& stages) {
  const double base = stages[0].MedianSeconds();
  const auto row = [&](const std::string& name, const std::function<std::string(Measured&)>& cell) {
    std::cout << absl::StreamFormat("%-17s", name);
    for (Measured& stage : stages) std::cout << absl::StreamFormat("%14s ", cell(stage));
    std::cout << '\n';
  };
  std::cout << '\n';
  row("ms per step",
      [](Measured& stage) { return absl::StrFormat("%.1f", stage.MedianSeconds() * 1e3); });
  row("relative",
      [base](Measured& stage) { return absl::StrFormat("%.3f", stage.MedianSeconds() / base); });
  std::cout << absl::StreamFormat("(medians of %d steps)\n", stages[0].seconds.size());
}

}  // namespace

absl::StatusOr<uint64_t> CompareStages(const Job& job) {
  Stages stages;
  if (job.options.offload.any()) {
    std::cout
        << DescribeOffload(job.options.offload, 0, 0, job.pool->threads(),
                           UpdatesDuringBackward(OptimizerConfig(job.options)))
        << "note        stage 0 offloads nothing, and weights are offloaded in stage 3 only\n";
  }
  for (int64_t repeat = 0; repeat < job.options.repeats; ++repeat) {
    for (int i = 0; i < kStages; ++i) {
      const int stage = static_cast<int>((i + repeat) % kStages);  // nobody is always first
      Job run = job;
      run.options.stage = stage;
      if (repeat == 0) {
        ZERO_ASSIGN_OR_RETURN(stages[stage].plan, PlanCost(run.options, run.model));
      }
      ZERO_ASSIGN_OR_RETURN(const uint64_t signals, RunStage(run, stages[stage]));
      if (signals != 0) {
        std::cout << "stopped by " << StopSignalName(signals) << " in round " << repeat + 1
                  << ", stage " << stage << "; the stages are not compared" << std::endl;
        return signals;
      }
      std::cout << absl::StreamFormat("round %d of %d, stage %d: %.1f ms per step so far\n",
                                      repeat + 1, job.options.repeats, stage,
                                      stages[stage].MedianSeconds() * 1e3)
                << std::flush;
    }
  }
  Table table;
  PrintBytes(stages, table);
  PrintWire(stages, table);
  PrintTimes(stages);
  if (table.first_difference().empty()) {
    std::cout << "every count of bytes is the plan's" << std::endl;
    return 0;
  }
  return absl::InternalError(absl::StrCat("not as planned: ", table.first_difference()));
}

}  // namespace zero::train
