// What is kept of 16-bit weights, which optimizer updates them, and how gradients are sent.
#include <cmath>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/stage_cells.h"

namespace zero::test {
namespace {

Cell MixedCell(int ranks, int micro_batches = 1) {
  Cell cell;
  cell.ranks = ranks;
  cell.micro_batches = micro_batches;
  cell.dtype = DType::kBF16;
  cell.accumulation = DType::kF32;
  cell.bucket = 0;
  cell.prefetch = 1;
  cell.model = "mixed";
  cell.adamw = true;
  cell.clip = 0.5;
  cell.evaluate = false;
  return cell;
}

// Checks bytes and wire against the plan, too.
Outcome Run(const Cell& cell, int stage, const Config& changes) {
  INFO("stage " << stage << ", " << cell.ranks << " ranks");
  ToyRun run = MakeRun(cell, stage, /*exact=*/true);
  const auto groups = run.config.groups;
  const int64_t bucket = run.config.reduce_bucket_size;
  run.config = changes;
  run.config.stage = stage;
  run.config.groups = groups;
  run.config.reduce_bucket_size = bucket;
  run.config.poison_slots = true;
  run.config.clip_norm = cell.clip;
  run.config.accumulation = cell.accumulation;
  const Outcome outcome = RunToy(run);
  REQUIRE_OK(outcome.status);
  CheckPlanned(outcome, cell.micro_batches);
  return outcome;
}

const OptimizerKind kOptimizers[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                     OptimizerKind::kSgd, OptimizerKind::kLion};

Config With(OptimizerKind optimizer) {
  Config config;
  config.optimizer = optimizer;
  config.learning_rate = 0.01;
  config.momentum = 0.9;
  config.nesterov = true;
  return config;
}

TEST_CASE("Optimizers: every one gives the same bits in every stage", "[zero][masters]") {
  for (OptimizerKind optimizer : kOptimizers) {
    for (int ranks : {1, 2, 4}) {
      const Config config = With(optimizer);
      const Outcome whole = Run(MixedCell(ranks), 0, config);
      for (int stage = 1; stage < 4; ++stage) {
        CHECK(FirstDifference(whole, Run(MixedCell(ranks), stage, config)) == "");
      }
    }
  }
}

TEST_CASE("Masters: split ones give the bits of fp32 ones with the same rounding",
          "[zero][masters]") {
  for (OptimizerKind optimizer : kOptimizers) {
    for (int ranks : {1, 2, 3}) {
      Config config = With(optimizer);
      config.weight_rounding = WeightRounding::kNearestAway;
      const Outcome wide = Run(MixedCell(ranks), 0, config);
      config.master = MasterKind::kSplit;
      for (int stage = 0; stage < 4; ++stage) {
        const Outcome split = Run(MixedCell(ranks), stage, config);
        CHECK(FirstDifference(wide, split) == "");
        CHECK(split.plan.masters.bytes < wide.plan.masters.bytes);
      }
    }
  }
}

TEST_CASE("Masters: without them the bits do not depend on stage or ranks", "[zero][masters]") {
  Config config = With(OptimizerKind::kAdamW);
  config.master = MasterKind::kNone;
  std::vector<Outcome> outcomes;
  for (int ranks : {1, 2, 3, 4}) {
    for (int stage = 0; stage < 4; ++stage) {
      ToyRun run = MakeRun(MixedCell(ranks), stage, /*exact=*/true);
      const auto groups = run.config.groups;
      run.config = config;
      run.config.groups = groups;
      run.config.stage = stage;
      // The same on every rank, so that the mean is the same for any number of them.
      run.spoil = [](int, int step, std::vector<float>& gradient) {
        for (size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = static_cast<float>((i * 7 + static_cast<size_t>(step)) % 11) - 5;
        }
      };
      outcomes.push_back(RunToy(run));
      REQUIRE_OK(outcomes.back().status);
      CHECK(outcomes.back().plan.masters.bytes == 0);
      CHECK(outcomes.back().weights == outcomes.front().weights);
      CHECK(outcomes.back().moment2 == outcomes.front().moment2);
    }
  }
  // Another seed rounds otherwise.
  ToyRun run = MakeRun(MixedCell(1), 0, true);
  const auto groups = run.config.groups;
  run.config = config;
  run.config.groups = groups;
  run.config.stage = 0;
  const Outcome one = RunToy(run);
  run.config.rounding_seed = 1;
  const Outcome other = RunToy(run);
  CHECK(one.moment1 == other.moment1);
  CHECK(one.weights != other.weights);
}

TEST_CASE("Masters: without them small updates move the mean of the weights", "[zero][masters]") {
  constexpr int64_t kWeights = 10'000;
  for (const bool master : {true, false}) {
    LocalWorld world(1);
    Config config;
    config.learning_rate = 6e-4;
    config.master = master ? MasterKind::kF32 : MasterKind::kNone;
    Model model = SimpleModel(1, kWeights, DType::kBF16);
    auto rank = Rank::Create(config, model, world.group(0));
    REQUIRE_OK(rank.status());
    const Source ones = [](const Parameter&, int64_t, absl::Span<float> out) {
      std::fill(out.begin(), out.end(), 1.0f);
      return absl::OkStatus();
    };
    REQUIRE_OK(rank->optimizer->Write(State::kWeight, ones));
    for (int step = 0; step < 100; ++step) {
      REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrainLast));
      auto gradients = rank->optimizer->AcquireGradients(0, *rank->stream);
      REQUIRE_OK(gradients.status());
      auto* const data = static_cast<uint16_t*>(gradients->data[0]);
      REQUIRE_OK(rank->stream->Enqueue("ones", [data] {
        std::fill(data, data + kWeights, uint16_t{0x3F80});  // 1 in bf16
        return absl::OkStatus();
      }));
      REQUIRE_OK(rank->optimizer->ReduceGradients(0, *rank->stream));
      REQUIRE_OK(rank->optimizer->Step().status());
    }
    std::vector<float> weights(kWeights);
    REQUIRE_OK(rank->optimizer->Gather(State::kWeight, "u0.w", absl::MakeSpan(weights)));
    double sum = 0;
    for (float weight : weights) sum += weight;
    // One step of bf16 below 1 is 0.0039: rounded to nearest, no update of 6e-4 would show.
    CHECK(sum / kWeights == Approx(0.94).margin(0.01));
  }
}

TEST_CASE("Masters: written and gathered back whatever is kept of them", "[zero][masters]") {
  for (MasterKind master : {MasterKind::kF32, MasterKind::kSplit, MasterKind::kNone}) {
    for (int ranks : {1, 3}) {
      for (int stage = 0; stage < 4; ++stage) {
        LocalWorld world(ranks, absl::Seconds(20));
        REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
          Config config;
          config.stage = stage;
          config.groups = {{}, {}};
          config.master = master;
          if (master != MasterKind::kNone) config.weight_rounding = WeightRounding::kNearestAway;
          auto rank = Rank::Create(config, MakeModel("mixed", DType::kBF16), group);
          if (!rank.ok()) return rank.status();
          const absl::Status written = rank->optimizer->Write(State::kMaster, InitialValues());
          if (!written.ok()) return written;
          std::vector<float> given(11 * 37), got(11 * 37);
          const Parameter& parameter = rank->optimizer->model().units[0].parameters[0];
          (void)InitialValues()(parameter, 0, absl::MakeSpan(given));
          const absl::Status gathered =
              rank->optimizer->Gather(State::kMaster, parameter.name, absl::MakeSpan(got));
          if (!gathered.ok()) return gathered;
          const bool exact = got == given;
          if (exact != (master != MasterKind::kNone)) {
            return absl::InternalError(exact ? "kept too much" : "a master changed");
          }
          int64_t read = 0;
          bool same = true;
          const absl::Status status = rank->optimizer->Read(
              State::kMaster,
              [&](const Parameter& p, int64_t first, absl::Span<const float> values) {
                if (p.name != parameter.name) return absl::OkStatus();
                read += static_cast<int64_t>(values.size());
                for (size_t i = 0; i < values.size(); ++i) {
                  same = same && values[i] == got[static_cast<size_t>(first) + i];
                }
                return absl::OkStatus();
              });
          if (!status.ok()) return status;
          return same && (ranks > 1 || read == 11 * 37) ? absl::OkStatus()
                                                        : absl::InternalError("Read differs");
        }));
      }
    }
  }
}

TEST_CASE("Masters: what only bf16 can is refused for fp16 by name", "[zero][masters]") {
  for (MasterKind master : {MasterKind::kSplit, MasterKind::kNone}) {
    Config config;
    config.master = master;
    config.weight_rounding =
        master == MasterKind::kSplit ? WeightRounding::kNearestAway : WeightRounding::kNearestEven;
    const absl::Status status = MakePlan(config, SimpleModel(1, 3, DType::kF16), 1).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("'u0.w' is fp16"));
  }
}

TEST_CASE("Communication: another dtype gives the planned bytes and exact sums the same bits",
          "[zero][masters]") {
  for (int micro_batches : {1, 3}) {
    for (int ranks : {1, 2, 3}) {
      for (int stage = 0; stage < 4; ++stage) {
        const Cell cell = MixedCell(ranks, micro_batches);
        const Outcome plain = Run(cell, stage, With(OptimizerKind::kAdamW));
        for (DType sent : {DType::kF32, DType::kBF16, DType::kF16}) {
          INFO("sent " << Name(sent) << ", micro-batches " << micro_batches);
          Config config = With(OptimizerKind::kAdamW);
          config.communication = sent;
          const Outcome other = Run(cell, stage, config);
          CHECK(FirstDifference(plain, other) == "");
        }
      }
    }
  }
}

TEST_CASE("Communication: what is divided before it is sent is multiplied back",
          "[zero][masters]") {
  for (int micro_batches : {1, 3}) {
    for (int stage = 0; stage < 4; ++stage) {
      const Cell cell = MixedCell(3, micro_batches);
      Config config = With(OptimizerKind::kAdamW);
      const Outcome plain = Run(cell, stage, config);
      config.gradient_predivide_factor = 4;
      CHECK(FirstDifference(plain, Run(cell, stage, config)) == "");
    }
  }
}

}  // namespace
}  // namespace zero::test
