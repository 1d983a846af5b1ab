// LoadWeights: what is read, what is refused, and what has changed then.
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "io/safetensors.h"
#include "kernels/float16_math.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/zero/saved_folders.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

Tensor Floats(const std::string& name, std::vector<int64_t> shape,
              const std::vector<float>& values) {
  return {name, "F32", std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)};
}

void WriteTensors(const std::string& path, const std::vector<Tensor>& tensors) {
  std::vector<SafetensorsTensor> list;
  for (const Tensor& tensor : tensors) {
    list.emplace_back();
    list.back().name = tensor.name;
    list.back().dtype = tensor.dtype;
    list.back().shape = tensor.shape;
  }
  auto writer = SafetensorsWriter::Create(path, list);
  REQUIRE_OK(writer.status());
  for (const Tensor& tensor : tensors) REQUIRE_OK((*writer)->Append(tensor.bytes));
  REQUIRE_OK((*writer)->Finish());
}

// What a folder holds of a model whose masters are Values(seed).
std::vector<Tensor> TensorsOf(const Model& model, int seed, DType dtype) {
  const FileContents contents = ExpectedTensors(model, seed, dtype);
  std::vector<Tensor> tensors;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      tensors.push_back(
          {parameter.name, SafetensorsName(dtype), parameter.shape, contents.at(parameter.name)});
    }
  }
  return tensors;
}

using OwnState = std::map<std::string, std::vector<float>>;

// What a rank owns of a state.
absl::StatusOr<OwnState> Own(Rank& rank, State state) {
  OwnState own;
  const absl::Status read = rank.optimizer->Read(
      state, [&](const Parameter& parameter, int64_t, absl::Span<const float> values) {
        std::vector<float>& all = own[parameter.name];
        all.insert(all.end(), values.begin(), values.end());
        return absl::OkStatus();
      });
  if (!read.ok()) return read;
  return own;
}

// OK if the rank has what Write of Values(seed) makes, as masters and as weights.
absl::Status HasState(Rank& rank, const std::map<State, OwnState>& wanted) {
  for (const auto& [state, own] : wanted) {
    const auto now = Own(rank, state);
    if (!now.ok()) return now.status();
    if (*now != own) return absl::InternalError(absl::StrCat(Name(state), "s differ"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<State, OwnState>> StateOf(Rank& rank) {
  std::map<State, OwnState> states;
  for (const State state : {State::kMaster, State::kWeight}) {
    const auto own = Own(rank, state);
    if (!own.ok()) return own.status();
    states[state] = *own;
  }
  return states;
}

Config TwoGroups(int stage) {
  Config config;
  config.stage = stage;
  config.groups = {{}, {}};
  return config;
}

Model TiedModel() {
  Model model = SimpleModel(3, 300, DType::kBF16);
  model.units[0].parameters[0].aliases = {"head.w", "tail.w"};
  return model;
}

// LoadWeights must fail on every rank with all of `words`, and change nothing.
void CheckRefused(const SavingRun& run, const std::vector<std::string>& folders,
                  const std::vector<std::string>& words) {
  SavingRun loading = run;
  loading.body = [&](Rank& rank) -> absl::Status {
    const auto before = StateOf(rank);
    if (!before.ok()) return before.status();
    const auto r = static_cast<size_t>(rank.group->rank());
    const absl::Status status = rank.optimizer->LoadWeights(folders[r % folders.size()]).status();
    if (status.ok()) return absl::InternalError("it was loaded");
    for (const std::string& word : words) {
      if (!absl::StrContains(std::string(status.message()), word)) {
        return absl::InternalError(absl::StrCat("'", word, "' not in: ", status.ToString()));
      }
    }
    const absl::Status same = HasState(rank, *before);
    // Nothing stands in the way of a pass.
    return same.ok() ? rank.optimizer->BeginPass(Pass::kTrain) : same;
  };
  CHECK_OK(Run(loading));
}

}  // namespace

TEST_CASE("LoadWeights: masters and weights are those that Write of the file's values makes",
          "[zero][load]") {
  const UnsyncedFiles files;
  int combination = 0;
  for (const std::string& name : ModelNames()) {
    for (int stage = 0; stage < 4; ++stage) {
      for (const int ranks : {1, 2, 4}) {
        const DType dtype = kDTypes[combination % 3];
        const DType in_file = kDTypes[combination / 3 % 3];
        ++combination;
        INFO(name << ", stage " << stage << ", " << ranks << " ranks, " << Name(in_file) << " to "
                  << Name(dtype));
        const Model model = MakeModel(name, dtype);
        const TemporaryFolder folder;
        WriteTensors(folder.File("model.safetensors"), TensorsOf(model, 7, in_file));
        const auto file = SafetensorsFile::Open(folder.File("model.safetensors"));
        REQUIRE_OK(file.status());
        REQUIRE_OK(Run(
            {TwoGroups(stage), model, ranks, 1, [&](Rank& rank) -> absl::Status {
               const absl::Status written = rank.optimizer->Write(
                   State::kMaster,
                   [&](const Parameter& parameter, int64_t first, absl::Span<float> out) {
                     return file->Read(parameter.name, first, out);
                   });
               if (!written.ok()) return written;
               const auto wanted = StateOf(rank);
               if (!wanted.ok()) return wanted.status();
               const absl::Status other = rank.optimizer->Write(State::kMaster, Values(1));
               if (!other.ok()) return other;
               const auto loaded = rank.optimizer->LoadWeights(folder.path());
               if (!loaded.ok()) return loaded.status();
               const absl::Status counted = Require(
                   loaded->tensors == static_cast<int64_t>(file->tensors().size()) &&
                       loaded->overflowed == 0 && loaded->ignored.empty() && loaded->notes.empty(),
                   "counts");
               return counted.ok() ? HasState(rank, *wanted) : counted;
             }}));
      }
    }
  }
}

TEST_CASE("LoadWeights: what SaveWeights wrote comes back and can be written over",
          "[zero][load][thread]") {
  const UnsyncedFiles files;
  for (const int64_t limit : {int64_t{1'000'000}, int64_t{500}}) {
    const TemporaryFolder folder;
    REQUIRE_OK(
        Run({TwoGroups(3), MakeModel("mixed", DType::kBF16), 3, 4, [&](Rank& rank) -> absl::Status {
               const auto wanted = StateOf(rank);
               if (!wanted.ok()) return wanted.status();
               SaveWeightsOptions options;
               options.dtype = DType::kF32;
               options.max_shard_bytes = limit;
               for (int again = 0; again < 2; ++again) {
                 const auto saved = rank.optimizer->SaveWeights(folder.path(), options);
                 if (!saved.ok()) return saved.status();
                 const absl::Status other = rank.optimizer->Write(State::kMaster, Values(9));
                 if (!other.ok()) return other;
                 const auto loaded = rank.optimizer->LoadWeights(folder.path());
                 if (!loaded.ok()) return loaded.status();
                 if (loaded->bytes != saved->data_bytes) return absl::InternalError("bytes");
                 const absl::Status same = HasState(rank, *wanted);
                 if (!same.ok()) return same;
               }
               return absl::OkStatus();
             }}));
  }
}

TEST_CASE("LoadWeights: all that does not fit is listed and nothing changes", "[zero][load]") {
  const int stage = GENERATE(0, 3);
  const SavingRun run{TwoGroups(stage), SimpleModel(4, 300, DType::kBF16), 2, 1, {}};
  const TemporaryFolder folder;
  const std::string file = folder.File("model.safetensors");
  std::vector<Tensor> tensors = TensorsOf(run.model, 2, DType::kF32);
  tensors[1].shape = {2, 150};
  tensors[2] = {"u2.w", "I8", {300}, std::string(300, 'x')};
  tensors[3].name = "u3.w.SCB";
  WriteTensors(file, tensors);
  CheckRefused(run, {folder.path()},
               {file, "tensor 'u1.w' has shape [2, 150], the model's is [300]",
                "tensor 'u2.w' is I8; F32, BF16 and F16 can be read", "quantised",
                "tensor 'u3.w' of shape [300] is missing",
                "tensor 'u3.w.SCB' of F32 and shape [300] is none of the model"});
  WriteFile(file, "<!DOCTYPE html>, and so on");
  CheckRefused(run, {folder.path()}, {"rank 0: ", file, "HTML"});
  fs::remove(file);
  CheckRefused(run, {folder.path()}, {"rank 0: ", file});
}

TEST_CASE("LoadWeights: a rank whose folder is not like the others' stops all", "[zero][load]") {
  const int stage = GENERATE(1, 3);
  const SavingRun run{TwoGroups(stage), SimpleModel(2, 300), 3, 1, {}};
  const TemporaryFolder good, bad;
  std::vector<Tensor> tensors = TensorsOf(run.model, 2, DType::kF32);
  WriteTensors(good.File("model.safetensors"), tensors);
  CheckRefused(run, {good.path(), good.path(), bad.path()}, {"rank 2: ", bad.path()});
  WriteTensors(bad.File("model.safetensors"), TensorsOf(run.model, 2, DType::kBF16));
  CheckRefused(run, {good.path(), bad.path(), good.path()},
               {"ranks 0 and 1 see different tensors"});
}

TEST_CASE("LoadWeights: a tied tensor may have either name or several that are equal",
          "[zero][load]") {
  const int ranks = GENERATE(1, 3);
  const SavingRun run{TwoGroups(3), TiedModel(), ranks, 1, {}};
  const TemporaryFolder folder;
  const std::string file = folder.File("model.safetensors");
  const std::vector<Tensor> tensors = TensorsOf(run.model, 2, DType::kF32);
  const auto load = [&] {
    SavingRun loading = run;
    loading.body = [&](Rank& rank) -> absl::Status {
      const auto loaded = rank.optimizer->LoadWeights(folder.path());
      if (!loaded.ok()) return loaded.status();
      std::vector<float> values(300);
      const absl::Status gathered =
          rank.optimizer->Gather(State::kMaster, "u0.w", absl::MakeSpan(values));
      if (!gathered.ok()) return gathered;
      for (int i = 0; i < 300; ++i) {
        if (values[i] != ValueAt(2, "u0.w", i)) return absl::InternalError("another value");
      }
      return absl::OkStatus();
    };
    CHECK_OK(Run(loading));
  };
  std::vector<Tensor> tied = tensors;
  tied[0].name = "tail.w";
  WriteTensors(file, tied);
  load();
  for (const char* name : {"u0.w", "head.w"}) {
    tied.push_back(tensors[0]);
    tied.back().name = name;
  }
  WriteTensors(file, tied);
  load();
  // One bit of the last element, which is the last rank's to compare.
  tied.back().bytes[299 * 4] ^= 1;
  WriteTensors(file, tied);
  CheckRefused(run, {folder.path()},
               {file, "'u0.w' and 'head.w' are one tensor of the model, but element 299 differs"});
  tied.back() = {"head.w", "BF16", {300}, std::string(600, '\0')};
  WriteTensors(file, tied);
  CheckRefused(run, {folder.path()},
               {"'u0.w' and 'head.w' are one tensor of the model, but one is "
                "F32, the other BF16"});
}

TEST_CASE("LoadWeights: tensors that no parameter needs are ignored where a pattern says so",
          "[zero][load]") {
  const SavingRun run{TwoGroups(3), SimpleModel(2, 30), 2, 1, {}};
  const TemporaryFolder folder;
  std::vector<Tensor> tensors = TensorsOf(run.model, 2, DType::kF32);
  tensors.push_back(Floats("layers.0.rotary_emb.inv_freq", {2}, {1, NAN}));
  tensors.push_back({"position_ids", "I64", {1}, std::string(8, '\0')});
  WriteTensors(folder.File("model.safetensors"), tensors);
  CheckRefused(run, {folder.path()}, {"tensor 'position_ids' of I64"});
  SavingRun loading = run;
  loading.body = [&](Rank& rank) -> absl::Status {
    LoadWeightsOptions options;
    options.ignored.push_back("position_*");
    const auto loaded = rank.optimizer->LoadWeights(folder.path(), options);
    if (!loaded.ok()) return loaded.status();
    return Require(loaded->ignored == std::vector<std::string>{"layers.0.rotary_emb.inv_freq",
                                                               "position_ids"} &&
                       loaded->tensors == 2 && loaded->bytes == 240,
                   "what was ignored");
  };
  CHECK_OK(Run(loading));
}

TEST_CASE("LoadWeights: inf and NaN are named and weights are half written until the next",
          "[zero][load][errors]") {
  const int stage = GENERATE(0, 3);
  const float value =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity());
  const TemporaryFolder folder, good;
  SavingRun run{TwoGroups(stage), SimpleModel(2, 300), 2, 1, {}};
  std::vector<Tensor> tensors = TensorsOf(run.model, 2, DType::kF32);
  WriteTensors(good.File("model.safetensors"), tensors);
  std::memcpy(tensors[1].bytes.data() + 4 * 299, &value, 4);  // in the last rank's slice
  WriteTensors(folder.File("model.safetensors"), tensors);
  run.body = [&](Rank& rank) -> absl::Status {
    const absl::Status status = rank.optimizer->LoadWeights(folder.path()).status();
    const absl::Status named =
        Require(absl::IsInvalidArgument(status) &&
                    absl::StrContains(std::string(status.message()),
                                      absl::StrCat("tensor 'u1.w': element 299 is ", value)),
                status.ToString());
    if (!named.ok()) return named;
    for (const absl::Status& refused :
         {rank.optimizer->BeginPass(Pass::kEvaluate), rank.optimizer->SaveWeights("x").status(),
          rank.optimizer->Write(State::kMoment1, Values(1))}) {
      if (!absl::IsDataLoss(refused)) return absl::InternalError("used: " + refused.ToString());
    }
    const absl::Status again = rank.optimizer->LoadWeights(good.path()).status();
    return again.ok() ? rank.optimizer->BeginPass(Pass::kTrain) : again;
  };
  CHECK_OK(Run(run));
}

TEST_CASE("LoadWeights: finite values that the dtype cannot hold are counted once",
          "[zero][load]") {
  for (const auto& [dtype, large] :
       {std::pair(DType::kF16, 65520.0f), {DType::kBF16, std::numeric_limits<float>::max()}}) {
    for (int stage = 0; stage < 4; ++stage) {
      const TemporaryFolder folder;
      SavingRun run{TwoGroups(stage), SimpleModel(2, 300, dtype), 2, 1, {}};
      run.config.groups = {{}};
      std::vector<Tensor> tensors = TensorsOf(run.model, 2, DType::kF32);
      for (const int element : {3, 290}) {
        std::memcpy(tensors[1].bytes.data() + 4 * element, &large, 4);
      }
      WriteTensors(folder.File("model.safetensors"), tensors);
      run.body = [&, large = large](Rank& rank) -> absl::Status {
        const auto loaded = rank.optimizer->LoadWeights(folder.path());
        if (!loaded.ok()) return loaded.status();
        return Require(loaded->overflowed == 2 &&
                           absl::StrContains(loaded->first_overflowed,
                                             absl::StrCat("tensor 'u1.w': element 3 is ", large,
                                                          ", too large for ")),
                       absl::StrCat(loaded->overflowed, " ", loaded->first_overflowed));
      };
      CHECK_OK(Run(run));
    }
  }
}

TEST_CASE("LoadWeights: in stage 3 each rank reads its own ranges of the files", "[zero][load]") {
  const TemporaryFolder folder;
  SavingRun run{TwoGroups(3), SimpleModel(2, 250'000), 4, 1, {}};
  WriteTensors(folder.File("model.safetensors"), TensorsOf(run.model, 2, DType::kF32));
  run.body = [&](Rank& rank) { return rank.optimizer->LoadWeights(folder.path()).status(); };
  FaultyTransfers transfers;
  int64_t read = 0;
  transfers.transfer = [&](bool writes, size_t* bytes, off_t) {
    if (!writes) read += static_cast<int64_t>(*bytes);
    return 0;
  };
  REQUIRE_OK(Run(run));
  CHECK(read >= 2'000'000);
  CHECK(read < 2'010'000);
}

TEST_CASE("LoadWeights: whatever read fails all ranks are told and have changed alike",
          "[zero][load][errors]") {
  const int stage = GENERATE(1, 3);
  const TemporaryFolder folder;
  SavingRun run{TwoGroups(stage), SimpleModel(2, 300), 2, 1, {}};
  WriteTensors(folder.File("model.safetensors"), TensorsOf(run.model, 2, DType::kF32));
  int unchanged = 0, half_changed = 0;
  for (int n = 1;; ++n) {
    bool reached = false;
    std::mutex mutex;
    std::set<bool> changed;
    run.body = [&](Rank& rank) -> absl::Status {
      const auto before = StateOf(rank);
      if (!before.ok()) return before.status();
      const absl::Status status = rank.optimizer->LoadWeights(folder.path()).status();
      if (status.ok()) return status;
      const std::lock_guard<std::mutex> lock(mutex);
      reached = true;
      if (!absl::StrContains(std::string(status.message()), folder.File("model.safetensors")) ||
          !absl::StrContains(std::string(status.message()), "rank ")) {
        return absl::InternalError(status.ToString());
      }
      const absl::Status same = HasState(rank, *before);
      changed.insert(!same.ok());
      return same.ok() || absl::IsDataLoss(same) ? rank.optimizer->Finish() : same;
    };
    {
      FaultyTransfers transfers;
      int left = n;
      transfers.transfer = [&](bool writes, size_t*, off_t) {
        return !writes && --left == 0 ? EIO : 0;
      };
      REQUIRE_OK(Run(run));
    }
    if (!reached) break;
    CHECK(changed.size() == 1);  // the same on both
    ++(*changed.begin() ? half_changed : unchanged);
  }
  CHECK(unchanged >= 2);
  CHECK(half_changed >= 2);
}

}  // namespace zero::test
