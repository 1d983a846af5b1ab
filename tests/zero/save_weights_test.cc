// SaveWeights: what is in the folder.
#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/zero/saved_folders.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

Config TwoGroups(int stage) {
  Config config;
  config.stage = stage;
  config.groups = {{}, {}};
  return config;
}

int64_t BytesOf(const FileContents& contents) {
  int64_t bytes = 0;
  for (const auto& [name, content] : contents) bytes += static_cast<int64_t>(content.size());
  return bytes;
}

std::vector<std::string> NamesOf(const FileContents& contents) {
  std::vector<std::string> names;
  for (const auto& [name, content] : contents) names.push_back(name);
  return names;
}

// A unit with more elements than pass through the staging memory at once.
Model LongModel(DType dtype) {
  Model model = SimpleModel(2, 700'001, dtype);
  Parameter frozen = model.units[0].parameters[0];
  frozen.name = "u0.frozen";
  frozen.shape = {300'007};
  frozen.trainable = false;
  model.units[0].parameters.push_back(frozen);
  return model;
}

// Saves and returns what each rank got.
std::vector<WeightsSaved> Save(const SavingRun& run, const std::vector<std::string>& folders,
                               const SaveWeightsOptions& options) {
  std::vector<WeightsSaved> saved(static_cast<size_t>(run.ranks));
  SavingRun saving = run;
  saving.body = [&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.group->rank());
    const auto result = rank.optimizer->SaveWeights(folders[r % folders.size()], options);
    if (result.ok()) saved[r] = *result;
    return result.status();
  };
  REQUIRE_OK(Run(saving));
  return saved;
}

}  // namespace

TEST_CASE("SaveWeights: the folder holds every parameter once in every stage and world size",
          "[zero][save]") {
  const UnsyncedFiles files;
  int combination = 0;
  for (const std::string& name : ModelNames()) {
    for (int stage = 0; stage < 4; ++stage) {
      for (const int ranks : {1, 2, 3, 4}) {
        const DType dtype = kDTypes[combination % 3];
        const int wanted = combination / 3 % 4;
        ++combination;
        SaveWeightsOptions options;
        if (wanted > 0) options.dtype = kDTypes[wanted - 1];
        INFO(name << ", stage " << stage << ", " << ranks << " ranks, " << Name(dtype) << " as "
                  << (options.dtype.has_value() ? Name(*options.dtype) : "it is"));
        const Model model = MakeModel(name, dtype);
        const TemporaryFolder folder;
        const auto saved = Save({TwoGroups(stage), model, ranks, combination, {}},
                                {folder.File("model")}, options);
        const FileContents expected = ExpectedTensors(model, combination, options.dtype);
        const auto tensors = ReadTensors(folder.File("model"));
        REQUIRE_OK(tensors.status());
        CHECK(NamesOf(*tensors) == NamesOf(expected));
        CHECK(*tensors == expected);
        for (const WeightsSaved& result : saved) {
          CHECK(result.shared);
          CHECK(result.files == 1);
          CHECK(result.tensors == static_cast<int64_t>(expected.size()));
          CHECK(result.data_bytes == BytesOf(expected));
        }
        CHECK(NamesOf(ReadFolder(folder.File("model"))) ==
              std::vector<std::string>{"model.safetensors"});
      }
    }
  }
}

TEST_CASE("SaveWeights: more elements than the staging memory holds come through it in pieces",
          "[zero][save]") {
  const UnsyncedFiles files;
  const bool apart = GENERATE(false, true);
  const int stage = GENERATE(1, 3);
  for (const DType dtype : kDTypes) {
    for (const int wanted : {-1, 0, 1, 2}) {
      SaveWeightsOptions options;
      if (wanted >= 0) options.dtype = kDTypes[wanted];
      INFO("stage " << stage << ", " << Name(dtype) << " as " << wanted << ", apart " << apart);
      const TemporaryFolder folder;
      std::vector<std::string> folders = {folder.File("a")};
      if (apart) folders.push_back(folder.File("b"));
      const Model model = LongModel(dtype);
      const auto saved = Save({TwoGroups(stage), model, 3, 5, {}}, folders, options);
      CHECK(saved[0].shared == !apart);
      const FileContents expected = ExpectedTensors(model, 5, options.dtype);
      for (const std::string& path : folders) {
        const auto tensors = ReadTensors(path);
        REQUIRE_OK(tensors.status());
        CHECK((*tensors == expected));
      }
    }
  }
}

TEST_CASE("SaveWeights: split masters are put together and weights without masters are as they are",
          "[zero][save]") {
  const UnsyncedFiles files;
  const int stage = GENERATE(0, 1, 2, 3);
  const bool apart = GENERATE(false, true);
  CAPTURE(stage, apart);
  const Model model = MakeModel("mixed", DType::kBF16);
  for (const MasterKind master : {MasterKind::kSplit, MasterKind::kNone}) {
    Config config = TwoGroups(stage);
    config.master = master;
    if (master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
    SaveWeightsOptions options;
    options.dtype = DType::kF32;
    const TemporaryFolder folder;
    std::vector<std::string> folders = {folder.File("a")};
    if (apart) folders.push_back(folder.File("b"));
    std::mutex mutex;
    std::map<std::string, std::vector<float>> masters;
    REQUIRE_OK(
        Run({config, model, 2, 3, [&](Rank& rank) -> absl::Status {
               const auto r = static_cast<size_t>(rank.group->rank());
               const absl::Status saved =
                   rank.optimizer->SaveWeights(folders[r % folders.size()], options).status();
               if (!saved.ok()) return saved;
               return rank.optimizer->Read(
                   State::kMaster,
                   [&](const Parameter& parameter, int64_t first, absl::Span<const float> values) {
                     const std::lock_guard<std::mutex> lock(mutex);
                     std::vector<float>& all = masters[parameter.name];
                     all.resize(static_cast<size_t>(ElementCount(parameter)));
                     std::copy(values.begin(), values.end(), all.begin() + first);
                     return absl::OkStatus();
                   });
             }}));
    for (const std::string& path : folders) {
      const auto tensors = ReadTensors(path);
      REQUIRE_OK(tensors.status());
      CHECK(tensors->size() == 7);
      for (const auto& [name, values] : masters) {
        CHECK(tensors->at(name) ==
              std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
      }
      // What split masters are for: they are those that were written.
      if (master == MasterKind::kSplit) {
        CHECK(tensors->at("b.0") == ExpectedTensors(model, 3, DType::kF32).at("b.0"));
      }
    }
  }
}

TEST_CASE("SaveWeights: shards have at most the bytes that are allowed and an index of all",
          "[zero][save]") {
  const UnsyncedFiles files;
  const int ranks = GENERATE(1, 4);
  const Model model = MakeModel("odd", DType::kBF16);
  const FileContents expected = ExpectedTensors(model, 1, std::nullopt);
  for (const int64_t limit : {int64_t{1}, int64_t{300}, int64_t{1000}, BytesOf(expected) - 1}) {
    CAPTURE(ranks, limit);
    SaveWeightsOptions options;
    options.max_shard_bytes = limit;
    const TemporaryFolder folder;
    const auto saved = Save({TwoGroups(3), model, ranks, 1, {}}, {folder.path()}, options);
    const auto tensors = ReadTensors(folder.path());
    REQUIRE_OK(tensors.status());
    CHECK(*tensors == expected);
    const auto index = nlohmann::json::parse(ReadFile(folder.File("model.safetensors.index.json")));
    CHECK(index["metadata"]["total_size"] == BytesOf(expected));
    CHECK(index["weight_map"].size() == expected.size());
    const FileContents in_folder = ReadFolder(folder.path());
    CHECK(saved[0].files == static_cast<int>(in_folder.size()) - 1);
    CHECK(saved[0].files > 1);
    for (const auto& [name, bytes] : in_folder) {
      if (!absl::EndsWith(name, ".safetensors")) continue;
      const auto file = SafetensorsFile::Open(folder.File(name));
      REQUIRE_OK(file.status());
      CHECK(file->metadata() == std::map<std::string, std::string>{{"format", "pt"}});
      int64_t held = 0;
      for (const SafetensorsTensor& tensor : file->tensors()) held += tensor.bytes();
      CHECK((held <= limit || file->tensors().size() == 1));
    }
  }
}

TEST_CASE("SaveWeights: where all ranks see one folder only short texts are sent", "[zero][save]") {
  const TemporaryFolder folder;
  const auto sent = [&](const std::vector<std::string>& folders) {
    std::vector<int64_t> bytes(3);
    REQUIRE_OK(Run({TwoGroups(3), LongModel(DType::kBF16), 3, 1, [&](Rank& rank) {
                      const auto r = static_cast<size_t>(rank.group->rank());
                      const absl::Status saved =
                          rank.optimizer->SaveWeights(folders[r % folders.size()]).status();
                      bytes[r] = rank.group->traffic()[kSaving].bytes;
                      return saved;
                    }}));
    return bytes;
  };
  for (const int64_t bytes : sent({folder.File("a")})) CHECK(bytes < 30'000);
  // To both others: its third of the model, padding and texts.
  for (const int64_t bytes : sent({folder.File("b"), folder.File("c"), folder.File("d")})) {
    CHECK(bytes > 2 * (2 * 1'700'009 / 3));
    CHECK(bytes < 2 * (2 * 1'700'009 / 3) + 30'000);
  }
}

TEST_CASE("SaveWeights: each folder of ranks that do not see the others' is whole",
          "[zero][save][thread]") {
  const int stage = GENERATE(0, 2, 3);
  CAPTURE(stage);
  const TemporaryFolder folder;
  const Model model = MakeModel("mixed", DType::kBF16);
  SaveWeightsOptions options;
  options.max_shard_bytes = 900;
  options.files = {{"config.json", "{}"}};
  // Ranks 0 and 2 share one, under two names; rank 3 is alone.
  fs::create_directory(folder.File("a"));
  fs::create_directory_symlink(folder.File("a"), folder.File("a_again"));
  const std::vector<std::string> folders = {folder.File("a"), folder.File("b"),
                                            folder.File("a_again"), folder.File("c/d")};
  for (const WeightsSaved& saved : Save({TwoGroups(stage), model, 4, 1, {}}, folders, options)) {
    CHECK_FALSE(saved.shared);
  }
  const FileContents first = ReadFolder(folders[0]);
  CHECK(first.count("config.json") == 1);
  for (const std::string& path : folders) {
    const auto tensors = ReadTensors(path);
    REQUIRE_OK(tensors.status());
    CHECK(*tensors == ExpectedTensors(model, 1, std::nullopt));
    CHECK(ReadFolder(path) == first);
  }
}

TEST_CASE("SaveWeights: other files are copied unless they are weights or are given",
          "[zero][save]") {
  const TemporaryFolder from, to;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "config.json", "a.safetensors", "b.bin", "c.pt",
        "d.pth", "e.gguf", "model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
    WriteFile(from.File(name), absl::StrCat("of ", name));
  }
  WriteFile(from.File("empty.txt"), "");
  fs::create_directory(from.File("folder"));
  WriteFile(from.File("folder/x.json"), "x");
  fs::create_symlink(from.File("folder/x.json"), from.File("linked.json"));
  SaveWeightsOptions options;
  options.copy_from = from.path();
  options.files = {{"config.json", "given"}, {"notes.txt", std::string(100'000, 'n')}};
  Save({TwoGroups(2), MakeModel("odd", DType::kBF16), 2, 1, {}}, {to.path()}, options);
  FileContents files = ReadFolder(to.path());
  CHECK(files.erase("model.safetensors") == 1);
  CHECK(files == FileContents{{"tokenizer.json", "of tokenizer.json"},
                              {"tokenizer.model", "of tokenizer.model"},
                              {"config.json", "given"},
                              {"notes.txt", std::string(100'000, 'n')},
                              {"empty.txt", ""},
                              {"linked.json", "x"}});
  CHECK_FALSE(fs::is_symlink(to.File("linked.json")));
  // From where they are to be: they stay.
  options.copy_from = to.path();
  Save({TwoGroups(2), MakeModel("odd", DType::kBF16), 2, 1, {}}, {to.path()}, options);
  CHECK(ReadFolder(to.path()).size() == 7);
}

TEST_CASE("SaveWeights: arguments that are wrong are named and training goes on",
          "[zero][save][errors]") {
  const TemporaryFolder folder;
  REQUIRE_OK(Run(
      {TwoGroups(3), SimpleModel(2, 300), 2, 1, [&](Rank& rank) -> absl::Status {
         const auto refused = [&](const std::string& path, const SaveWeightsOptions& options,
                                  const std::string& words) {
           const absl::Status status = rank.optimizer->SaveWeights(path, options).status();
           return Require(absl::IsInvalidArgument(status) &&
                              absl::StrContains(std::string(status.message()), words),
                          words + " expected, got " + status.ToString());
         };
         SaveWeightsOptions options;
         absl::Status status = refused("", options, "the folder has no name");
         options.max_shard_bytes = 0;
         if (status.ok()) status = refused(folder.path(), options, "max_shard_bytes is 0");
         options.max_shard_bytes = 100 + rank.group->rank();
         if (status.ok())
           status = refused(folder.path(), options, "the options of ranks 0 and 1 differ");
         for (const char* name : {"", "a/b", "../x", ".hidden", "x.safetensors",
                                  "model.safetensors.index.json", "pytorch_model.bin"}) {
           options = {};
           options.files = {{name, ""}};
           if (status.ok()) status = refused(folder.path(), options, absl::StrCat("'", name, "'"));
         }
         options.files = {{"x", ""}, {"x", ""}};
         if (status.ok()) status = refused(folder.path(), options, "'x' is given twice");
         if (!status.ok()) return status;
         const absl::Status passed = rank.Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; });
         if (!passed.ok()) return passed;
         const absl::Status within = rank.optimizer->SaveWeights(folder.path()).status();
         status = Require(absl::IsFailedPrecondition(within) &&
                              absl::StrContains(std::string(within.message()), "SaveWeights"),
                          within.ToString());
         return status.ok() ? rank.optimizer->Step().status() : status;
       }}));
  CHECK(ReadFolder(folder.path()).empty());
}

TEST_CASE("SaveWeights: stage 3 refuses where the configuration forbids it", "[zero][save]") {
  for (int stage = 0; stage < 4; ++stage) {
    Config config;
    config.stage = stage;
    config.gather_16bit_weights_on_model_save = false;
    const TemporaryFolder folder;
    REQUIRE_OK(Run({config, SimpleModel(2, 300), 2, 1, [&](Rank& rank) {
                      const absl::Status status =
                          rank.optimizer->SaveWeights(folder.File("x")).status();
                      if (stage < 3) return status;
                      return Require(absl::IsFailedPrecondition(status) &&
                                         absl::StrContains(
                                             std::string(status.message()),
                                             "stage3_gather_16bit_weights_on_model_save is false"),
                                     status.ToString());
                    }}));
    CHECK(fs::exists(folder.File("x")) == (stage < 3));
  }
}

TEST_CASE("SaveWeights: a value that is too large for the dtype is named and nothing is saved",
          "[zero][save][errors]") {
  const bool apart = GENERATE(false, true);
  const TemporaryFolder folder;
  Config config;
  REQUIRE_OK(Run(
      {config, SimpleModel(2, 1000, DType::kBF16), 2, 1, [&](Rank& rank) -> absl::Status {
         const absl::Status written = rank.optimizer->Write(
             State::kMaster, [](const Parameter& parameter, int64_t first, absl::Span<float> out) {
               for (size_t i = 0; i < out.size(); ++i) {
                 out[i] = parameter.name == "u1.w" && first + static_cast<int64_t>(i) == 900
                              ? 65536.0f
                              : 1.0f;
               }
               return absl::OkStatus();
             });
         if (!written.ok()) return written;
         const std::string path = folder.File(apart && rank.group->rank() == 1 ? "b" : "a");
         SaveWeightsOptions options;
         options.dtype = DType::kF16;
         const absl::Status status = rank.optimizer->SaveWeights(path, options).status();
         const absl::Status named = Require(
             absl::IsInvalidArgument(status) &&
                 absl::StrContains(std::string(status.message()),
                                   "parameter 'u1.w': element 900 is 65536, too large for fp16"),
             status.ToString());
         return named.ok() ? rank.optimizer->Finish() : named;
       }}));
  CHECK(ReadFolder(folder.path()).empty());
}

}  // namespace zero::test
