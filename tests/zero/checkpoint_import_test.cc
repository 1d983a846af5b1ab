// A checkpoint from weights, loaded and interrupted.
#include "zero/save/checkpoint_import.h"

#include <cmath>
#include <filesystem>

#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/end_after.h"
#include "tests/zero/rank_fixture.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::test {
namespace {

// Exact in bf16.
float ValueOf(const std::string& name, int64_t element) {
  return static_cast<float>(static_cast<int64_t>(name.size()) * 16 - element % 113) / 4;
}

absl::Status GiveValues(const Parameter& parameter, int64_t first, absl::Span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = ValueOf(parameter.name, first + static_cast<int64_t>(i));
  }
  return absl::OkStatus();
}

Model SmallModel(DType dtype) {
  Model model = SimpleModel(3, 300, dtype);
  model.units[1].parameters.push_back({"u1.frozen", {7, 3}, dtype, 0, false, {}});
  model.units[1].parameters.push_back({"u1.empty", {0, 3}, dtype, 0, true, {}});
  model.units[2].parameters.push_back({"u2.long.name", {}, DType::kF32, 0, true, {"other"}});
  return model;
}

struct Kind {
  DType dtype;
  OptimizerKind optimizer;
  MasterKind master;
  double momentum;
};

Config ConfigOf(const Kind& kind) {
  Config config;
  config.optimizer = kind.optimizer;
  config.momentum = kind.momentum;
  config.master = kind.master;
  if (kind.master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
  config.loss_scale.scale = 1024;
  return config;
}

TEST_CASE("Import: what is imported is loaded with zero moments by any number of ranks", "[save]") {
  constexpr Kind kKinds[] = {
      {DType::kF32, OptimizerKind::kAdamW, MasterKind::kF32, 0},
      {DType::kBF16, OptimizerKind::kAdamW, MasterKind::kF32, 0},
      {DType::kBF16, OptimizerKind::kAdam, MasterKind::kSplit, 0},
      {DType::kBF16, OptimizerKind::kLion, MasterKind::kNone, 0},
      {DType::kF16, OptimizerKind::kSgd, MasterKind::kF32, 0},
      {DType::kF16, OptimizerKind::kSgd, MasterKind::kF32, 0.9},
  };
  for (const Kind& kind : kKinds) {
    const TemporaryFolder folder;
    const Config config = ConfigOf(kind);
    const Model model = SmallModel(kind.dtype);
    const auto path = ImportCheckpoint(config, model, GiveValues, folder.path(), nullptr);
    REQUIRE_OK(path.status());
    CHECK(*path == folder.File("step-00000000"));
    CHECK(folder.Names().size() == 1);
    auto reader = CheckpointReader::Open(*path);
    REQUIRE_OK(reader.status());
    CHECK_OK(reader->Verify(nullptr));
    CHECK(reader->manifest().counts.loss_scale == 1024);
    CHECK(reader->manifest().counts.steps == 0);
    // Whoever loads it reads forward.
    const auto file = SafetensorsFile::Open(*path + "/" + reader->manifest().files[0].name);
    REQUIRE_OK(file.status());
    std::string before;
    for (const SafetensorsTensor& tensor : file->tensors()) {
      const std::string state = tensor.name[0] == 'w' ? "master/" : tensor.name.substr(0, 7);
      CHECK(state >= before);
      before = state;
    }
    for (const int ranks : {1, 3}) {
      LocalWorld world(ranks, absl::Seconds(20));
      CHECK_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
        auto rank = Rank::Create(config, model, group);
        if (!rank.ok()) return rank.status();
        ShardedOptimizer& optimizer = *rank->optimizer;
        const auto loaded = optimizer.LoadCheckpoint(*path);
        if (!loaded.ok()) return loaded.status();
        if (loaded->step != 0 || loaded->applied_steps != 0) return absl::InternalError("step");
        if (!loaded->notes.empty()) return absl::InternalError(loaded->notes[0]);
        for (const Unit& unit : model.units) {
          for (const Parameter& parameter : unit.parameters) {
            std::vector<float> values(static_cast<size_t>(ElementCount(parameter)));
            for (const State state : {State::kMaster, State::kMoment1, State::kMoment2}) {
              const absl::Status gathered =
                  optimizer.Gather(state, parameter.name, absl::MakeSpan(values));
              if (absl::IsNotFound(gathered) && state != State::kMaster) continue;
              if (!gathered.ok()) return gathered;
              for (size_t i = 0; i < values.size(); ++i) {
                const float wanted = state == State::kMaster
                                         ? ValueOf(parameter.name, static_cast<int64_t>(i))
                                         : 0.0f;
                if (values[i] != wanted) return absl::InternalError(parameter.name + " differs");
              }
            }
          }
        }
        return absl::OkStatus();
      }));
    }
  }
}

TEST_CASE("Import: a file longer than its pieces is whole, and its progress too", "[save]") {
  const TemporaryFolder folder;
  const Model model = SimpleModel(1, 700'001, DType::kBF16);
  int64_t last = 0;
  int64_t all = 0;
  const auto path = ImportCheckpoint(Config(), model, GiveValues, folder.path(),
                                     [&](int64_t done, int64_t total) {
                                       CHECK(done > last);
                                       last = done;
                                       all = total;
                                     });
  REQUIRE_OK(path.status());
  CHECK(all == 700'001 * 12);
  CHECK(last == all);
  auto reader = CheckpointReader::Open(*path);
  REQUIRE_OK(reader.status());
  CHECK_OK(reader->Verify(nullptr));
  std::vector<float> values(700'001);
  REQUIRE_OK(reader->Read(0, kMasterState, 0, absl::MakeSpan(values)));
  bool same = true;
  for (size_t i = 0; i < values.size(); ++i) same = same && values[i] == ValueOf("u0.w", i);
  CHECK(same);
}

TEST_CASE("Import: what cannot be imported leaves nothing", "[save]") {
  const TemporaryFolder folder;
  const Model model = SmallModel(DType::kBF16);
  const auto import = [&](const Config& config, const Source& source) {
    return ImportCheckpoint(config, model, source, folder.path(), nullptr).status();
  };
  const Source infinite = [](const Parameter& parameter, int64_t, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 1.0f);
    if (parameter.name == "u1.frozen") out[5] = INFINITY;
    return absl::OkStatus();
  };
  absl::Status status = import(Config(), infinite);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("parameter 'u1.frozen': element 5 is inf"));
  status = import(Config(), [](const auto&, int64_t, auto) { return absl::DataLossError("torn"); });
  CHECK(absl::IsDataLoss(status));
  Config wrong;
  wrong.stage = 7;
  CHECK(absl::IsInvalidArgument(import(wrong, GiveValues)));
  CHECK(folder.Names().empty());

  REQUIRE_OK(import(Config(), GiveValues));
  const std::string manifest = ReadFile(folder.File("step-00000000/manifest.json"));
  CHECK(absl::IsAlreadyExists(import(Config(), infinite)));
  CHECK(folder.Names().size() == 1);
  CHECK(ReadFile(folder.File("step-00000000/manifest.json")) == manifest);
}

TEST_CASE("Import: wherever it is interrupted there is the whole checkpoint or none", "[save]") {
  const Model model = SmallModel(DType::kBF16);
  for (const bool once : {true, false}) {
    bool ended = true;
    int points = 0;
    for (; ended; ++points) {
      const TemporaryFolder folder;
      {
        EndAfter calls(points, once);
        const auto path = ImportCheckpoint(Config(), model, GiveValues, folder.path(), nullptr);
        ended = calls.ended();
        CHECK(path.ok() == !ended);
      }
      const auto names = folder.Names();
      // An error that comes after the last rename, of the sync of the folder, leaves it.
      if (once && ended)
        CHECK((names.empty() || names == std::vector<std::string>{"step-00000000"}));
      CHECK_OK(CleanCheckpoints(folder.path()));
      const auto found = FindCheckpoints(folder.path());
      REQUIRE_OK(found.status());
      CHECK(found->size() == folder.Names().size());
      for (const FoundCheckpoint& checkpoint : *found) {
        CHECK_OK(CheckpointReader::Open(checkpoint.path)->Verify(nullptr));
      }
    }
    CHECK(points > 10);
  }
}

}  // namespace
}  // namespace zero::test
