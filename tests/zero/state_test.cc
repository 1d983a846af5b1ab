// Write, Read and Gather speak of parameters and elements, whatever the stage and world size.
#include <algorithm>
#include <mutex>

#include "kernels/bfloat16_math.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

float ValueOf(const std::string& name, int64_t element, float shift) {
  return shift + static_cast<float>(name.size()) + static_cast<float>(element % 97) / 8;
}

Source ShiftedSource(float shift) {
  return [shift](const Parameter& parameter, int64_t first, absl::Span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = ValueOf(parameter.name, first + static_cast<int64_t>(i), shift);
    }
    return absl::OkStatus();
  };
}

}  // namespace

TEST_CASE("Write and Gather: every state comes back, in every stage and world size",
          "[zero][state]") {
  for (const std::string& name : ModelNames()) {
    for (const int ranks : {1, 3}) {
      for (int stage = 0; stage < 4; ++stage) {
        LocalWorld world(ranks, absl::Seconds(20));
        const Model model = MakeModel(name, DType::kBF16);
        std::mutex mutex;
        REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
          Config config;
          config.stage = stage;
          config.groups = {{}, {}};
          auto rank = Rank::Create(config, model, group);
          if (!rank.ok()) return rank.status();
          ShardedOptimizer& optimizer = *rank->optimizer;
          const std::pair<State, float> states[] = {
              {State::kMaster, 0.001f}, {State::kMoment1, 2}, {State::kMoment2, 3}};
          for (const auto& [state, shift] : states) {
            const absl::Status written = optimizer.Write(state, ShiftedSource(shift));
            if (!written.ok()) return written;
          }
          for (const Unit& unit : model.units) {
            for (const Parameter& parameter : unit.parameters) {
              std::vector<float> values(static_cast<size_t>(ElementCount(parameter)));
              for (const auto& [state, shift] : states) {
                const absl::Status gathered =
                    optimizer.Gather(state, parameter.name, absl::MakeSpan(values));
                if (!parameter.trainable && state != State::kMaster && !values.empty()) {
                  if (absl::IsNotFound(gathered)) continue;
                  return absl::InternalError("a frozen parameter has moments");
                }
                if (!gathered.ok()) return gathered;
                const bool rounded = !parameter.trainable && parameter.dtype != DType::kF32;
                for (size_t i = 0; i < values.size(); ++i) {
                  float wanted = ValueOf(parameter.name, static_cast<int64_t>(i), shift);
                  if (rounded) wanted = ToFloat(ToBFloat16(wanted));
                  if (values[i] != wanted) return absl::InternalError(parameter.name + " differs");
                }
              }
              // The weights are the masters, rounded.
              const absl::Status gathered =
                  optimizer.Gather(State::kWeight, parameter.name, absl::MakeSpan(values));
              if (!gathered.ok()) return gathered;
              for (size_t i = 0; i < values.size(); ++i) {
                float wanted = ValueOf(parameter.name, static_cast<int64_t>(i), 0.001f);
                if (parameter.dtype != DType::kF32) wanted = ToFloat(ToBFloat16(wanted));
                if (values[i] != wanted) return absl::InternalError("weight differs");
              }
            }
          }
          return absl::OkStatus();
        }));
      }
    }
  }
}

TEST_CASE("Write: written weights are rounded, and the masters are made from them",
          "[zero][state]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    auto rank = Rank::Create(
        [&] {
          Config c;
          c.stage = stage;
          return c;
        }(),
        SimpleModel(2, 40'000, DType::kBF16), world.group(0));
    REQUIRE_OK(rank.status());
    REQUIRE_OK(rank->optimizer->Write(State::kWeight, ShiftedSource(0.001f)));
    std::vector<float> weight(40'000), master(40'000);
    REQUIRE_OK(rank->optimizer->Gather(State::kWeight, "u1.w", absl::MakeSpan(weight)));
    REQUIRE_OK(rank->optimizer->Gather(State::kMaster, "u1.w", absl::MakeSpan(master)));
    CHECK(weight == master);
    CHECK(weight[39'999] == ToFloat(ToBFloat16(ValueOf("u1.w", 39'999, 0.001f))));
  }
}

// Long ones are filled where they lie, pieces at once; their ends are in the middle of pieces, of
// slices, and of both.
TEST_CASE("Write: parameters of many pieces come back, and no source is asked twice",
          "[zero][state]") {
  constexpr int64_t kElements = 300'007;
  for (int stage = 0; stage < 4; ++stage) {
    for (const int ranks : {1, 3}) {
      CAPTURE(stage, ranks);
      LocalWorld world(ranks, absl::Seconds(20));
      REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
        Config config;
        config.stage = stage;
        auto rank = Rank::Create(config, SimpleModel(2, kElements, DType::kBF16), group);
        if (!rank.ok()) return rank.status();
        std::vector<float> values(kElements);
        float shift = 0;
        for (const State state : {State::kMaster, State::kMoment1, State::kMoment2}) {
          shift += 1;
          std::vector<int> asked(2 * kElements);
          const Source source = ShiftedSource(shift);
          const absl::Status written = rank->optimizer->Write(
              state, [&](const Parameter& parameter, int64_t first, absl::Span<float> out) {
                const int64_t unit = parameter.name == "u1.w" ? kElements : 0;
                for (size_t i = 0; i < out.size(); ++i) ++asked[unit + first + i];
                return source(parameter, first, out);
              });
          if (!written.ok()) return written;
          if (*std::max_element(asked.begin(), asked.end()) > 1) {
            return absl::InternalError("an element is asked for twice");
          }
          for (const char* name : {"u0.w", "u1.w"}) {
            const absl::Status gathered =
                rank->optimizer->Gather(state, name, absl::MakeSpan(values));
            if (!gathered.ok()) return gathered;
            for (int64_t i = 0; i < kElements; ++i) {
              if (values[i] != ValueOf(name, i, shift)) return absl::InternalError("differs");
            }
          }
        }
        return absl::OkStatus();
      }));
    }
  }
}

TEST_CASE("Read: each element is read on exactly one rank", "[zero][state]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const State state : {State::kWeight, State::kMaster, State::kMoment2}) {
      LocalWorld world(3, absl::Seconds(20));
      const Model model = MakeModel("mixed", DType::kBF16);
      std::mutex mutex;
      std::map<std::string, std::vector<int>> seen;
      REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
        Config config;
        config.stage = stage;
        config.groups = {{}, {}};
        auto rank = Rank::Create(config, model, group);
        if (!rank.ok()) return rank.status();
        return rank->optimizer->Read(
            state, [&](const Parameter& parameter, int64_t first, absl::Span<const float> values) {
              std::lock_guard<std::mutex> lock(mutex);
              std::vector<int>& counts = seen[parameter.name];
              counts.resize(static_cast<size_t>(ElementCount(parameter)), 0);
              for (size_t i = 0; i < values.size(); ++i) ++counts[first + i];
              return absl::OkStatus();
            });
      }));
      for (const Unit& unit : model.units) {
        for (const Parameter& parameter : unit.parameters) {
          INFO(parameter.name << " " << Name(state) << " stage " << stage);
          const bool there = state != State::kMoment2 || parameter.trainable;
          CHECK(seen.count(parameter.name) == (there ? 1 : 0));
          if (!there) continue;
          CHECK(seen[parameter.name] ==
                std::vector<int>(static_cast<size_t>(ElementCount(parameter)), 1));
        }
      }
    }
  }
}

TEST_CASE("Gather: gradients are the sums, between the last pass and Step", "[zero][state]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(2, absl::Seconds(20));
    REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
      Config config;
      config.stage = stage;
      auto rank = Rank::Create(config, SimpleModel(2, 300), group);
      if (!rank.ok()) return rank.status();
      std::vector<float> values(300);
      const absl::Span<float> out = absl::MakeSpan(values);
      if (!absl::IsFailedPrecondition(rank->optimizer->Gather(State::kGradient, "u1.w", out))) {
        return absl::InternalError("gradients before a pass");
      }
      const absl::Status passed = rank->Pass(Pass::kTrainLast, [&](int u, int64_t i) {
        return static_cast<float>((group->rank() + 1) * (u * 1000 + i));
      });
      if (!passed.ok()) return passed;
      if (!absl::IsFailedPrecondition(rank->optimizer->Gather(State::kMaster, "u1.w", out))) {
        return absl::InternalError("masters within a pass");
      }
      const absl::Status gathered = rank->optimizer->Gather(State::kGradient, "u1.w", out);
      if (!gathered.ok()) return gathered;
      for (int i = 0; i < 300; ++i) {
        if (values[i] != 3.0f * (1000 + i)) return absl::InternalError("not the sum");
      }
      return rank->optimizer->Step().status();
    }));
  }
}

TEST_CASE("Gather: an alias names its parameter, an unknown name gets the nearest one",
          "[zero][state][errors]") {
  LocalWorld world(1);
  Config config;
  config.groups = {{}, {}};
  auto rank = Rank::Create(config, MakeModel("mixed", DType::kF32), world.group(0));
  REQUIRE_OK(rank.status());
  std::vector<float> values(37 * 11);
  CHECK_OK(rank->optimizer->Gather(State::kWeight, "head", absl::MakeSpan(values)));
  const absl::Status unknown =
      rank->optimizer->Gather(State::kWeight, "embeding.0", absl::MakeSpan(values));
  CHECK(absl::IsNotFound(unknown));
  CHECK_THAT(std::string(unknown.message()), ContainsSubstring("'embedding.0'"));
  values.resize(3);
  const absl::Status size = rank->optimizer->Gather(State::kWeight, "head", absl::MakeSpan(values));
  CHECK(absl::IsInvalidArgument(size));
  CHECK_THAT(std::string(size.message()), ContainsSubstring("407 elements, out has 3"));
  CHECK(absl::IsInvalidArgument(rank->optimizer->Write(State::kGradient, ShiftedSource(0))));
  // A source that fails ends the call with its error.
  CHECK(absl::IsDataLoss(
      rank->optimizer->Write(State::kMaster, [](const Parameter&, int64_t, absl::Span<float>) {
        return absl::DataLossError("no such file");
      })));
}

}  // namespace zero::test
