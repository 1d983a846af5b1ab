// What kernels do on CUDA besides computing: launches that fail, threads that may race. Needs the
// stand-ins.
#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/decide.h"
#include "kernels/zero_ranges.h"
#include "tests/emulation/grid.h"
#include "tests/kernels/update_test_util.h"
#include "tests/standin/cudart.h"

namespace zero {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

// Every kernel once, through the functions that users call, on `n` elements, a multiple of 64.
struct EveryKernel {
  EveryKernel(KernelRun* the_run, int64_t n)
      : run(*the_run),
        in(kBF16, RandomFloats(n, 21)),
        out(kF32, RandomFloats(n, 22)),
        state({kBF16, Masters::kSplit}, n, 0),
        scratch(NormChunks(n)) {
    row.count = 1;
    step.ranks = run.On(&rank);
    step.rank_count = 1;
    step.rows = run.On(&row);
    step.row_groups = run.On(&row_group);
    step.row_count = 1;
    step.group_count = 1;
    step.state = run.On(&step_state);
    step.scalars = run.On(&scalars);
    step.groups = run.On(&group);
    step.record = run.On(&record);
    sum.parts = run.On(in);
    sum.part_type = kBF16;
    sum.part_count = 2;
    sum.part_stride = n / 2;
    sum.out = run.On(out);
    sum.n = n / 2;
    const Stream& s = run.stream();
    calls = {
        {"cast", [this, &s, n] { return Cast(s, run.On(in), kBF16, run.On(out), kF32, n); }},
        {"add", [this, &s, n] { return Add(s, run.On(in), kBF16, run.On(out), kF32, n); }},
        {"scale", [this, &s, n] { return Scale(s, run.On(out), kF32, 0.5f, n); }},
        {"fill", [this, &s, n] { return Fill(s, run.On(in), kBF16, 0.5f, n); }},
        {"ordered_sum", [this, &s] { return OrderedSum(s, sum); }},
        {"norm_chunks",
         [this, &s, n] {
           return Norm(s, run.On(out), kF32, n, run.On(scratch), run.On(&partial));
         }},
        {"adam", [this, &s] { return Adam(s, state.Adam(run)); }},
        {"lion", [this, &s] { return Lion(s, state.Lion(run)); }},
        {"sgd", [this, &s] { return Sgd(s, state.Sgd(run)); }},
        {"combine_norms",
         [this, &s] {
           return CombineNorms(s, run.On(&partial), run.On(&base), 1, 1, run.On(&first),
                               run.On(&rank));
         }},
        {"note_non_finite",
         [this, &s] { return NoteNonFinite(s, run.On(&partial), 0, run.On(&first)); }},
        {"decide_step", [this, &s] { return DecideStep(s, step); }},
        {"record_norms", [this, &s] { return RecordNorms(s, step); }},
        {"note_failure",
         [this, &s] { return NoteFailure(s, run.On(&group_failed), run.On(&note)); }},
        {"zero_ranges",
         [this, &s, n] {
           return ZeroRanges(s, {{run.On(out), n * 4}});
         }},
    };
  }

  KernelRun& run;
  Elements in, out;
  UpdateState state;
  std::vector<NormPartial> scratch;
  NormPartial partial;
  int64_t base = 0;
  int64_t first = 0;
  RankNorm rank;
  StepRow row;
  GroupScalars row_group, group;
  StepState step_state;
  StepScalars scalars;
  StepRecord record;
  int32_t group_failed = 1, note = 0;
  DecideArguments step;
  OrderedSumArguments sum;
  std::vector<std::pair<std::string, std::function<absl::Status()>>> calls;
};

TEST_CASE("Kernels: a launch that fails names the kernel and leaves the stream usable",
          "[kernels][errors]") {
  KernelRun run;
  EveryKernel kernels(&run, 640);
  for (const auto& [name, call] : kernels.calls) {
    REQUIRE_OK(call());  // what it needs on the device is there from here on
    const int64_t before = run.kernels();
    standin::FailCall("cudaLaunchKernel", 0, cudaErrorLaunchOutOfResources);
    const absl::Status failed = call();
    INFO(name << ": " << failed.ToString());
    CHECK(failed.code() == absl::StatusCode::kInternal);
    CHECK_THAT(std::string(failed.message()), ContainsSubstring("kernel " + name + ":"));
    CHECK_THAT(std::string(failed.message()), ContainsSubstring("701"));
    CHECK(run.kernels() == before + 1);
    CHECK_OK(call());
  }
  run.Finish();
}

TEST_CASE("Norm: a failing second launch is named", "[kernels][errors]") {
  KernelRun run;
  Elements x(kF32, RandomFloats(640, 23));
  NormPartial scratch, out;
  float* const on_device = run.FloatsOn(x);
  NormPartial* const scratch_on = run.On(&scratch);
  NormPartial* const out_on = run.On(&out);
  standin::FailCall("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
  const absl::Status failed = Norm(run.stream(), on_device, kF32, 640, scratch_on, out_on);
  CHECK_THAT(std::string(failed.message()), ContainsSubstring("kernel norm_add_chunks:"));
  run.Finish();
}

TEST_CASE("ZeroRanges: a failing launch after the first is reported", "[kernels][errors]") {
  KernelRun run;
  std::vector<unsigned char> bytes(200, 1);
  std::vector<ByteRange> ranges;
  for (int64_t i = 0; i < 200; ++i) ranges.push_back({run.On(bytes) + i, 1});
  standin::FailCall("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
  CHECK_THAT(std::string(ZeroRanges(run.stream(), ranges).message()),
             ContainsSubstring("kernel zero_ranges:"));
  run.Finish();
  CHECK(std::count(bytes.begin(), bytes.end(), 0) == 128);
}

TEST_CASE("Kernels: threads of one kernel do not race", "[kernels][thread]") {
  emulation::SetFiberForEachThread(true);
  {
    KernelRun run;
    EveryKernel kernels(&run, 10'240);
    for (const auto& [name, call] : kernels.calls) {
      INFO(name);
      REQUIRE_OK(call());
      REQUIRE_OK(run.stream().Synchronize());
    }
    run.Finish();
    CHECK(kernels.record.applied == 1);
  }
  emulation::SetFiberForEachThread(false);
}

}  // namespace
}  // namespace zero
