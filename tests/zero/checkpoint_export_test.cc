// A folder made from a checkpoint is the one that SaveWeights makes.
#include "zero/save/checkpoint_export.h"

#include <bit>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/io/replaced_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/checkpoint_fixture.h"
#include "tests/zero/end_after.h"
#include "tests/zero/saved_folders.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

// Two units; what is frozen, fp32, empty, scalar and tied among them.
Model MixedModel(DType dtype) {
  Model model = SimpleModel(2, 270'001, dtype);
  model.units[0].parameters.push_back({"u0.frozen", {13, 7}, dtype, 0, false, {}});
  model.units[0].parameters.push_back({"u0.wide", {9}, DType::kF32, 0, true, {"u0.alias"}});
  model.units[1].parameters.push_back({"u1.empty", {0, 3}, dtype, 0, true, {}});
  model.units[1].parameters.push_back({"u1.scalar", {}, dtype, 0, true, {}});
  return model;
}

// Many of them in the middle between two values of 16 bits.
absl::Status TiesAndOthers(const Parameter& parameter, int64_t first, absl::Span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t element = first + static_cast<int64_t>(i);
    const auto step = static_cast<uint32_t>(element % 61);
    const uint32_t middle = element % 2 == 0 ? 0x8000u : 0x1000u;  // of bf16; of fp16
    out[i] = std::bit_cast<float>(0x3F800000u + step * 0x10000u + middle);
    if (element % 5 == 0) out[i] = ValueAt(3, parameter.name, element);
  }
  return absl::OkStatus();
}

struct Kind {
  DType dtype;
  MasterKind master;
  int ranks;
};

TEST_CASE("Export: the files are those of SaveWeights, byte for byte", "[save][thread]") {
  constexpr Kind kKinds[] = {{DType::kF32, MasterKind::kF32, 1},
                             {DType::kBF16, MasterKind::kF32, 3},
                             {DType::kBF16, MasterKind::kSplit, 2},
                             {DType::kBF16, MasterKind::kNone, 3},
                             {DType::kF16, MasterKind::kF32, 2}};
  std::vector<SaveWeightsOptions> wanted(5);
  wanted[0].max_shard_bytes = 600'000;
  wanted[1].dtype = DType::kF32;
  wanted[2].dtype = DType::kBF16;
  wanted[3].dtype = DType::kF16;
  wanted[4].files = {{"config.json", "{}"}};
  for (const Kind& kind : kKinds) {
    const TemporaryFolder folder;
    SavingRun run;
    run.model = MixedModel(kind.dtype);
    run.ranks = kind.ranks;
    run.config.master = kind.master;
    if (kind.master == MasterKind::kSplit) {
      run.config.weight_rounding = WeightRounding::kNearestAway;
    }
    const auto saved = [&](size_t i) { return folder.File(absl::StrCat("saved", i)); };
    run.body = [&](Rank& rank) -> absl::Status {
      const absl::Status written = rank.optimizer->Write(State::kMaster, TiesAndOthers);
      if (!written.ok()) return written;
      for (size_t i = 0; i < wanted.size(); ++i) {
        const absl::Status status = rank.optimizer->SaveWeights(saved(i), wanted[i]).status();
        if (!status.ok()) return status;
      }
      return rank.optimizer->SaveCheckpoint(folder.path(), {}).status();
    };
    REQUIRE_OK(Run(run));
    auto reader = CheckpointReader::Open(folder.File("step-00000000"));
    REQUIRE_OK(reader.status());
    for (size_t i = 0; i < wanted.size(); ++i) {
      INFO(Name(kind.dtype) << ", masters " << Name(kind.master) << ", way " << i);
      const std::string path = folder.File(absl::StrCat("exported", i));
      int64_t last = 0;
      int64_t all = 0;
      const auto exported =
          ExportWeights(*reader, path, wanted[i], [&](int64_t done, int64_t total) {
            CHECK(done > last);
            last = done;
            all = total;
          });
      REQUIRE_OK(exported.status());
      CHECK(exported->tensors == 6);
      CHECK(last == exported->data_bytes);
      CHECK(all == exported->data_bytes);
      CHECK((exported->files > 1) == (i == 0));
      CHECK(ReadFolder(path) == ReadFolder(saved(i)));
    }
  }
}

TEST_CASE("Export: what rounding would make infinite is refused and changes nothing", "[save]") {
  const TemporaryFolder folder;
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  CutIntoFiles(manifest, 2);
  const auto value = [](const std::string& state, int64_t parameter, int64_t element) {
    return parameter == 1 && element == 6 ? -70000.0f : ExactValue(state, parameter, element);
  };
  REQUIRE_OK(WriteCheckpoint(folder.File("checkpoint"), manifest, value));
  auto reader = CheckpointReader::Open(folder.File("checkpoint"));
  REQUIRE_OK(reader.status());
  const std::string output = folder.File("a/b");
  SaveWeightsOptions options;
  options.dtype = DType::kF16;
  const auto refused = ExportWeights(*reader, output, options, nullptr);
  CHECK(absl::IsInvalidArgument(refused.status()));
  CHECK_THAT(std::string(refused.status().message()),
             ContainsSubstring("'layer.bias': element 6 is -70000, too large for fp16"));
  CHECK(!fs::exists(folder.File("a")));
  // In its own dtype a weight is what it is.
  options.dtype.reset();
  CHECK_OK(ExportWeights(*reader, output, options, nullptr).status());
}

TEST_CASE("Export: a damaged checkpoint leaves the folder as it was", "[save]") {
  const TemporaryFolder folder;
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  CutIntoFiles(manifest, 2);
  REQUIRE_OK(WriteCheckpoint(folder.File("checkpoint"), manifest));
  auto reader = CheckpointReader::Open(folder.File("checkpoint"));
  REQUIRE_OK(reader.status());
  REQUIRE_OK(ExportWeights(*reader, folder.File("out"), {}, nullptr).status());
  const FileContents before = ReadFolder(folder.File("out"));

  const std::string file = folder.File("checkpoint/") + manifest.files[1].name;
  std::string content = ReadFile(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  WriteFile(file, content);
  auto damaged = CheckpointReader::Open(folder.File("checkpoint"));
  REQUIRE_OK(damaged.status());
  SaveWeightsOptions options;
  options.max_shard_bytes = 20;
  CHECK(absl::IsDataLoss(ExportWeights(*damaged, folder.File("out"), options, nullptr).status()));
  CHECK(ReadFolder(folder.File("out")) == before);
  options.files = {{"../config.json", "{}"}};
  CHECK(absl::IsInvalidArgument(
      ExportWeights(*damaged, folder.File("out"), options, nullptr).status()));
}

// A disk that changes the first byte of every header.
class WrongFiles : public ReplacedFiles {
 public:
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    std::string other(static_cast<const char*>(bytes), count);
    if (offset == 0 && count > 8 && other[8] == '{') other[8] = '[';
    return FileCalls::Pwrite(descriptor, other.data(), count, offset);
  }
};

TEST_CASE("Export: files that cannot be read back do not replace others", "[save]") {
  const TemporaryFolder folder;
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  CutIntoFiles(manifest, 1);
  REQUIRE_OK(WriteCheckpoint(folder.File("checkpoint"), manifest));
  auto reader = CheckpointReader::Open(folder.File("checkpoint"));
  REQUIRE_OK(reader.status());
  const WrongFiles wrong;
  CHECK(!ExportWeights(*reader, folder.File("out"), {}, nullptr).ok());
  CHECK(!fs::exists(folder.File("out")));
}

TEST_CASE("Export: wherever it is interrupted there is a whole model or none", "[save]") {
  const TemporaryFolder checkpoint;
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  CutIntoFiles(manifest, 2);
  REQUIRE_OK(WriteCheckpoint(checkpoint.path(), manifest));
  const SaveWeightsOptions options;
  FileContents whole;
  for (const bool once : {true, false}) {
    bool ended = true;
    int points = 0;
    for (; ended; ++points) {
      const TemporaryFolder folder;
      auto reader = CheckpointReader::Open(checkpoint.path());
      REQUIRE_OK(reader.status());
      {
        EndAfter calls(points, once);
        const auto exported = ExportWeights(*reader, folder.File("out"), options, nullptr);
        ended = calls.ended();
        if (!ended) CHECK_OK(exported.status());
      }
      const absl::StatusOr<bool> any = WeightFolder::In(folder.File("out"));
      REQUIRE_OK(any.status());
      if (*any) {
        const auto tensors = ReadTensors(folder.File("out"));
        REQUIRE_OK(tensors.status());
        CHECK(tensors->size() == 5);
      }
      // The next one cleans up.
      REQUIRE_OK(ExportWeights(*reader, folder.File("out"), options, nullptr).status());
      if (whole.empty()) whole = ReadFolder(folder.File("out"));
      CHECK(ReadFolder(folder.File("out")) == whole);
    }
    CHECK(points > 8);
  }
}

}  // namespace
}  // namespace zero::test
