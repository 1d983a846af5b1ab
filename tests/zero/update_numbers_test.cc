// Numbers of updates: bias correction late in a run, which parameters decay or are frozen, and
// tensors of every awkward size on any number of ranks.
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/zero/given_pass.h"
#include "tests/zero/toy_trainer.h"
#include "zero/parameter_groups.h"

namespace zero::test {
namespace {

TEST_CASE("Bias correction: steps 300 and 3000 move as they do in double", "[zero][numbers]") {
  // Exact in fp32, which 0.999 is not: over 3000 steps its rounding would be most of the error. The
  // second has still to be corrected at step 3000, by 1 / 0.31.
  for (const double beta2 : {1 - std::pow(2, -10), 1 - std::pow(2, -13)}) {
    Config config;
    config.beta1 = 0.875;
    config.beta2 = beta2;
    // Only those steps move, so that each is seen on its own.
    config.schedule = [](int64_t count) { return count == 300 || count == 3000 ? 1.0 : 0.0; };
    LocalWorld world(1);
    auto rank = Rank::Create(config, SimpleModel(1, 3), world.group(0));
    REQUIRE_OK(rank.status());
    const auto gradient = [](int64_t step, int64_t i) {
      return static_cast<float>(step * (i + 3) % 17) / 8 - 0.5f * static_cast<float>(i);
    };
    std::vector<double> m(3, 0), v(3, 0), wanted(3, 0);
    for (int64_t step = 1; step <= 3000; ++step) {
      const bool moves = step == 300 || step == 3000;
      for (int64_t i = 0; i < 3; ++i) {
        const double g = double{gradient(step, i)};
        m[i] = 0.875 * m[i] + 0.125 * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        const double count = static_cast<double>(step);
        const double first = m[i] / (1 - std::pow(0.875, count));
        const double second = v[i] / (1 - std::pow(beta2, count));
        if (moves) wanted[i] -= first / (std::sqrt(second) + 1e-8);
      }
      const auto result =
          RunStep(*rank, [&](const Parameter&, int64_t i) { return gradient(step, i); });
      REQUIRE_OK(result.status());
      if (!moves) continue;
      INFO("beta2 " << beta2 << ", step " << step);
      CHECK(result->applied_steps == step);
      const auto weights = GatherAll(*rank, State::kWeight);
      REQUIRE_OK(weights.status());
      for (int i = 0; i < 3; ++i) {
        CHECK(std::abs(wanted[i]) > 0.01);
        CHECK(std::abs(double{(*weights)[0][i]} - wanted[i]) < 1e-6);
      }
    }
  }
}

// ---- Groups.

// Two layers with biases, and a head that is the embedding.
Model TiedModel(DType dtype) {
  Model model;
  Unit embedding;
  embedding.name = "embedding";
  embedding.resident = true;
  embedding.parameters = {MakeParameter("embed_tokens.weight", {13, 8}, dtype)};
  embedding.parameters[0].aliases = {"lm_head.weight"};
  model.units.push_back(embedding);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = absl::StrCat("layers.", layer, ".");
    Unit unit;
    unit.name = prefix;
    unit.parameters = {MakeParameter(prefix + "input_norm.weight", {8}, dtype),
                       MakeParameter(prefix + "q_proj.weight", {8, 8}, dtype),
                       MakeParameter(prefix + "o_proj.weight", {8, 8}, dtype),
                       MakeParameter(prefix + "q_proj.bias", {8}, dtype)};
    model.units.push_back(unit);
  }
  Unit head;
  head.name = "head";
  head.parameters = {MakeParameter("norm.weight", {8}, dtype)};
  model.units.push_back(head);
  return model;
}

ParameterGroup Group(const std::string& pattern, double decay, bool frozen = false) {
  ParameterGroup group;
  group.pattern = pattern;
  group.weight_decay = decay;
  group.frozen = frozen;
  return group;
}

std::vector<std::vector<float>> Initial(const Model& model) {
  std::vector<std::vector<float>> all;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float> values(static_cast<size_t>(ElementCount(parameter)));
      (void)InitialValues()(parameter, 0, absl::MakeSpan(values));
      all.push_back(std::move(values));
    }
  }
  return all;
}

TEST_CASE("Decay: without a gradient matrices shrink once and norms and biases stay",
          "[zero][numbers]") {
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kLion}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (int ranks : {1, 3}) {
        for (int stage = 0; stage < 4; ++stage) {
          INFO(Name(kind) << ", " << Name(dtype) << ", stage " << stage << ", " << ranks
                          << " ranks");
          Config config;
          config.stage = stage;
          config.optimizer = kind;
          config.learning_rate = 1e-2;
          config.groups = {{1, 0.1}, Group("*norm.weight", 0), Group("*.bias", 0)};
          Model model = TiedModel(dtype);
          REQUIRE_OK(AssignGroups(config, &model));
          const std::vector<GroupContents> contents = CountGroups(config, model);
          CHECK(contents[0].parameters == 5);
          CHECK(contents[1].parameters == 3);
          CHECK(contents[2].parameters == 2);
          std::vector<std::vector<float>> masters;
          REQUIRE_OK(OnRanks(ranks, config, model, [&](Rank& rank) {
            ZERO_RETURN_IF_ERROR(rank.optimizer->Write(State::kMaster, InitialValues()));
            ZERO_RETURN_IF_ERROR(
                RunStep(rank, [](const Parameter&, int64_t) { return 0.0f; }).status());
            ZERO_ASSIGN_OR_RETURN(auto gathered, GatherAll(rank, State::kMaster));
            if (rank.group->rank() == 0) masters = std::move(gathered);
            return absl::OkStatus();
          }));
          std::vector<std::vector<float>> wanted = Initial(model);
          size_t index = 0;
          for (const Unit& unit : model.units) {
            for (const Parameter& parameter : unit.parameters) {
              if (parameter.shape.size() == 2) {
                for (float& value : wanted[index]) value *= static_cast<float>(1 - 1e-2 * 0.1);
              }
              INFO(parameter.name);
              CHECK(masters[index] == wanted[index]);
              ++index;
            }
          }
        }
      }
    }
  }
}

// ---- States by name, as a checkpoint would hold them.

using Snapshot = std::map<std::pair<State, std::string>, std::vector<float>>;
const State kSavedStates[] = {State::kMaster, State::kMoment1, State::kMoment2};

// What all ranks own, put together; an element that is read twice or never is kDataLoss.
class Collector {
 public:
  absl::Status Add(Rank& rank) {
    for (State state : {State::kWeight, State::kMaster, State::kMoment1, State::kMoment2}) {
      ZERO_RETURN_IF_ERROR(rank.optimizer->Read(
          state, [&](const Parameter& parameter, int64_t first, absl::Span<const float> values) {
            std::lock_guard<std::mutex> lock(mutex_);
            std::vector<float>& all = snapshot_[{state, parameter.name}];
            std::vector<int>& times = times_[{state, parameter.name}];
            all.resize(static_cast<size_t>(ElementCount(parameter)));
            times.resize(all.size());
            for (size_t i = 0; i < values.size(); ++i) {
              all[static_cast<size_t>(first) + i] = values[i];
              ++times[static_cast<size_t>(first) + i];
            }
            return absl::OkStatus();
          }));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Snapshot> Whole() const {
    for (const auto& [key, times] : times_) {
      for (int n : times) {
        if (n != 1) return absl::DataLossError(absl::StrCat(key.second, " was read ", n, " times"));
      }
    }
    return snapshot_;
  }

 private:
  std::mutex mutex_;
  Snapshot snapshot_;
  std::map<std::pair<State, std::string>, std::vector<int>> times_;
};

Source From(const Snapshot& snapshot, State state) {
  return [&snapshot, state](const Parameter& parameter, int64_t first, absl::Span<float> out) {
    const auto found = snapshot.find({state, parameter.name});
    if (found == snapshot.end()) return absl::NotFoundError(parameter.name);
    std::copy_n(found->second.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  };
}

// The same on every rank and exact in bf16, so that their mean is the same for any number of them.
float ValueAt(const Parameter& parameter, int64_t i) {
  return static_cast<float>((i * 5 + ElementCount(parameter)) % 13) - 6.5f;
}

// `steps` steps, of values around which memory is NaN. From the initial values, or from `start`.
absl::StatusOr<Snapshot> TrainOn(int ranks, const Config& config, const Model& model, int steps,
                                 const Snapshot* start, double* norm = nullptr) {
  Collector collector;
  ZERO_RETURN_IF_ERROR(OnRanks(ranks, config, model, [&](Rank& rank) {
    if (start == nullptr) {
      ZERO_RETURN_IF_ERROR(rank.optimizer->Write(State::kMaster, InitialValues()));
    } else {
      for (State state : kSavedStates) {
        ZERO_RETURN_IF_ERROR(rank.optimizer->Write(state, From(*start, state)));
      }
    }
    for (int step = 0; step < steps; ++step) {
      ZERO_ASSIGN_OR_RETURN(const StepResult result,
                            RunStep(rank, ValueAt, std::numeric_limits<float>::quiet_NaN()));
      if (!result.applied) return absl::InternalError("skipped: " + result.first_non_finite);
      if (norm != nullptr && rank.group->rank() == 0) *norm = result.gradient_norm;
    }
    return collector.Add(rank);
  }));
  return collector.Whole();
}

// ---- Frozen parameters.

struct Freezing {
  const char* what;
  std::vector<ParameterGroup> groups;
  int64_t trained;  // elements
};

TEST_CASE("Frozen: parameters keep their bytes and have no states and are read like others",
          "[zero][numbers]") {
  Model described = TiedModel(DType::kBF16);
  described.units[3].parameters[0].shape = {2048};
  const int64_t all = 13 * 8 + 2 * (8 + 64 + 8 + 64) + 2048;
  const std::vector<Freezing> cases = {
      {"the embedding", {{1, 0.1}, Group("embed*", 0.1, true)}, all - 13 * 8},
      {"a part of each layer", {{1, 0.1}, Group("*.q_proj.*", 0.1, true)}, all - 2 * (64 + 8)},
      {"all but one norm", {Group("*", 0.1, true), Group("norm.weight", 0.1)}, 2048},
  };
  for (const Freezing& freezing : cases) {
    for (int ranks : {1, 2, 8}) {
      for (int stage = 0; stage < 4; ++stage) {
        INFO(freezing.what << ", stage " << stage << ", " << ranks << " ranks");
        Config config;
        config.stage = stage;
        config.learning_rate = 0.01;
        config.groups = freezing.groups;
        Model model = described;
        REQUIRE_OK(AssignGroups(config, &model));
        const auto before = TrainOn(ranks, config, model, 0, nullptr);
        const auto after = TrainOn(ranks, config, model, 3, nullptr);
        REQUIRE_OK(before.status());
        REQUIRE_OK(after.status());
        int64_t trained = 0;
        for (const Unit& unit : model.units) {
          for (const Parameter& parameter : unit.parameters) {
            INFO(parameter.name);
            const std::string& name = parameter.name;
            REQUIRE(after->count({State::kWeight, name}) == 1);
            const auto& weights = after->at({State::kWeight, name});
            CHECK((weights == before->at({State::kWeight, name})) != parameter.trainable);
            for (State state : {State::kMoment1, State::kMoment2}) {
              CHECK(after->count({state, name}) == (parameter.trainable ? 1 : 0));
            }
            if (parameter.trainable) trained += ElementCount(parameter);
          }
        }
        CHECK(trained == freezing.trained);
        const auto plan = MakePlan(config, model, ranks);
        REQUIRE_OK(plan.status());
        if (trained == 2048) {  // without padding, on 8 ranks too
          const int64_t held = 2048 / (stage == 0 ? 1 : ranks);
          CHECK(plan->bytes_of(MemoryCategory::kOptimizerStates) == 12 * held);
        }
      }
    }
  }
}

// ---- Sizes.

Model AwkwardModel(DType dtype) {
  const std::vector<std::vector<std::vector<int64_t>>> lists = {
      {{1}}, {{3}}, {{57}}, {{8}, {0}, {24}}, {{0, 8}, {5}}, {{32}}, {{1}, {1}, {1}, {99991}}};
  Model model;
  for (size_t u = 0; u < lists.size(); ++u) {
    Unit unit;
    unit.name = absl::StrCat("list", u);
    for (size_t p = 0; p < lists[u].size(); ++p) {
      unit.parameters.push_back(MakeParameter(absl::StrCat(unit.name, ".", p), lists[u][p], dtype));
    }
    model.units.push_back(unit);
  }
  return model;
}

TEST_CASE("Sizes: any world size holds every element once and pads less than a slice quantum",
          "[zero][layout]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Model model = AwkwardModel(dtype);
    for (const int ranks : {1, 2, 3, 4, 7, 8, 64, 768, 2048}) {
      INFO(ranks << " ranks");
      const auto plan = MakePlan(Config(), model, ranks);
      REQUIRE_OK(plan.status());
      for (size_t u = 0; u < model.units.size(); ++u) {
        const UnitLayout& unit = plan->layout.units[u];
        REQUIRE(unit.segments.size() == 1);
        const Segment& segment = unit.segments[0];
        CHECK(segment.slice % kSliceAlignment == 0);  // 256 bytes or more
        CHECK(segment.slice * ranks == segment.elements);
        // Pieces in the order of the model and gaps between them cover the segment.
        std::set<std::pair<int64_t, int64_t>> runs;
        int64_t covered = 0;
        for (size_t p = 0; p < unit.parameters.size(); ++p) {
          CHECK(unit.parameters[p].count == ElementCount(model.units[u].parameters[p]));
          covered += unit.parameters[p].count;
          if (unit.parameters[p].count == 0) continue;
          runs.insert({unit.parameters[p].first, unit.parameters[p].count});
        }
        int64_t last_gap = 0;
        for (const Run& gap : unit.gaps) {
          runs.insert({gap.first, gap.count});
          covered += gap.count;
          const bool at_end = gap.first + gap.count == segment.elements;
          if (at_end) last_gap = gap.count;
          if (!at_end) CHECK(gap.count < kParameterAlignment);
        }
        CHECK(last_gap < ranks * kSliceAlignment);
        CHECK(covered == segment.elements);
        int64_t end = 0;
        for (const auto& [first, count] : runs) {
          CHECK(first == end);
          end = first + count;
        }
        CHECK(end == segment.elements);
      }
    }
  }
}

TEST_CASE("Sizes: tiny and empty and odd tensors train and reload alike on any number of ranks",
          "[zero][numbers]") {
  const Model model = AwkwardModel(DType::kBF16);
  double squares = 0;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      for (int64_t i = 0; i < ElementCount(parameter); ++i) {
        squares += std::pow(double{ValueAt(parameter, i)}, 2);
      }
    }
  }
  Config config;
  config.learning_rate = 0.01;
  config.clip_norm = 1;
  config.stage = 0;
  const auto start = TrainOn(1, config, model, 2, nullptr);
  REQUIRE_OK(start.status());
  const auto wanted = TrainOn(1, config, model, 1, &*start);
  REQUIRE_OK(wanted.status());
  CHECK(*wanted != *start);
  CHECK(wanted->at({State::kMoment2, "list6.3"}).size() == 99991);
  CHECK(wanted->at({State::kWeight, "list2.0"}).size() == 57);
  const auto check = [&](int ranks, int stage) {
    INFO("stage " << stage << ", " << ranks << " ranks");
    config.stage = stage;
    const auto loaded = TrainOn(ranks, config, model, 0, &*start);
    REQUIRE_OK(loaded.status());
    CHECK(*loaded == *start);
    double norm = 0;
    const auto trained = TrainOn(ranks, config, model, 1, &*start, &norm);
    REQUIRE_OK(trained.status());
    CHECK(*trained == *wanted);
    CHECK(norm == Approx(std::sqrt(squares)).epsilon(1e-14));
  };
  for (int ranks : {1, 2, 3, 4, 7, 8}) {
    for (int stage = 0; stage < 4; ++stage) check(ranks, stage);
  }
  check(64, 3);
}

}  // namespace
}  // namespace zero::test
