#include "examples/train/resume.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device/status.h"
#include "examples/train/checkpoint_options.h"
#include "examples/train/saved_states.h"
#include "io/folder.h"
#include "io/problems.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_manifest.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::train {
namespace {

constexpr const char* kPosition = "data_position";
constexpr const char* kModel = "model";
constexpr const char* kSamples = "samples_per_step";

absl::Status Prefixed(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

// The keys of config.json that decide what the model computes, and are others now.
std::string ModelDifference(const llama::LlamaConfig& saved, const llama::LlamaConfig& now) {
  const auto lines = [](llama::LlamaConfig config) {
    config.json.clear();
    config.initializer_range = 0;
    const std::string json = llama::ToJson(config, DType::kF32).value_or("");
    std::map<std::string, std::string> values;
    for (absl::string_view line : absl::StrSplit(json, '\n')) {
      line = absl::StripSuffix(absl::StripAsciiWhitespace(line), ",");
      const size_t colon = line.find(": ");
      if (colon != absl::string_view::npos) {
        values[std::string(line.substr(0, colon))] = std::string(line.substr(colon + 2));
      }
    }
    return values;
  };
  const auto before = lines(saved);
  auto after = lines(now);
  std::vector<std::string> found;
  const auto add = [&](const std::string& key, const std::string& a, const std::string& b) {
    if (a != b) found.push_back(absl::StrCat(key, " is ", a, " in the checkpoint, ", b, " now"));
  };
  for (const auto& [key, value] : before) {
    const auto other = after.find(key);
    add(key, value, other == after.end() ? "absent" : other->second);
    after.erase(key);
  }
  for (const auto& [key, value] : after) add(key, "absent", value);
  return absl::StrJoin(found, ", ");
}

// Whether something in the folder wants to be a checkpoint.
bool HoldsCheckpoints(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return !absl::IsNotFound(names.status());
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, "step-") || absl::StartsWith(name, ".step-")) return true;
  }
  return false;
}

// The checkpoint that `options.resume` means; without a path: there is none, and need not be.
absl::StatusOr<ResumePoint> Find(const Options& options) {
  ResumePoint point;
  const bool latest = options.resume == kLatest;
  const std::string& folder = latest ? options.checkpoint_dir : options.resume;
  if (latest && !HoldsCheckpoints(folder)) {
    point.notes = {absl::StrCat("no checkpoint in ", folder, " yet: the run begins anew")};
    return point;
  }
  ZERO_RETURN_IF_ERROR(RequireFolder(folder, "a checkpoint, or a folder that holds some"));
  const absl::StatusOr<CheckpointManifest> one = ReadManifest(folder);
  if (one.ok()) {
    ZERO_RETURN_IF_ERROR(CheckCheckpointName(folder, one->step));
    point.path = folder;
    point.step = one->step;
    return point;
  }
  // What has a manifest is one checkpoint, if a bad one.
  if (!absl::IsNotFound(one.status())) return one.status();
  ZERO_ASSIGN_OR_RETURN(const FoundCheckpoint found, LatestCheckpoint(folder));
  point.path = found.path;
  point.step = found.step;
  point.folder = folder;
  for (const std::string& why : found.passed_over) {
    point.notes.push_back(absl::StrCat("passed over, not complete: ", why));
  }
  return point;
}

// One under the name of another step would be replaced when the run comes to that step, and would
// never be pruned.
absl::Status CheckNames(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(path);
    if (!manifest.ok()) continue;
    const absl::Status status = CheckCheckpointName(path, manifest->step);
    if (!status.ok()) {
      return absl::DataLossError(
          absl::StrCat(std::string(status.message()), "; rename it, or move it away"));
    }
  }
  return absl::OkStatus();
}

// Later checkpoints, of another run or of this one when it went further, would be taken for those
// of this run: by --resume latest, and by whoever looks for the last one.
absl::Status CheckLater(const Options& options, const ResumePoint& point) {
  const absl::StatusOr<std::vector<FoundCheckpoint>> found =
      FindCheckpoints(options.checkpoint_dir);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(found.status());
  std::vector<std::string> later;
  for (const FoundCheckpoint& checkpoint : *found) {
    if (checkpoint.step > std::max(point.step, point.damaged_step))
      later.push_back(CheckpointName(checkpoint.step));
  }
  if (later.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--checkpoint_dir: ", options.checkpoint_dir, " holds checkpoints of later steps than ",
      point.step, ", where this run begins, up to ", later.back(),
      ": go on from that with --resume latest, give another folder, or move them away"));
}

// What is wrong with what lies in a checkpoint; OK where it is sound, or nobody can tell.
absl::Status DamageOf(const std::string& path) {
  absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(path);
  const absl::Status status = reader.ok() ? reader->Verify(nullptr) : reader.status();
  return absl::IsDataLoss(status) ? status : absl::OkStatus();
}

// That of several, one with more steps than the run is to have is no reason to refuse the run
// where it is damaged: then it would be passed over anyway.
absl::Status PassOverDamaged(const Options& options, ResumePoint& point) {
  while (point.step > options.steps) {
    const absl::Status damage = DamageOf(point.path);
    if (damage.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(point.path, ": is of step ", point.step,
                                                     ", and --steps, the total of the run, is ",
                                                     options.steps));
    }
    const std::string before = CheckpointBefore(point.path, point.folder);
    if (before.empty()) return damage;
    ZERO_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(before));
    point.notes.push_back(absl::StrCat("passed over, damaged: ", std::string(damage.message())));
    point.damaged_step = std::max(point.damaged_step, point.step);
    point.path = before;
    point.step = manifest.step;
  }
  return absl::OkStatus();
}

absl::StatusOr<ResumePoint> FindResumePoint(const Options& options, const llama::LlamaConfig& model,
                                            const llama::TokenDataset& data) {
  ZERO_ASSIGN_OR_RETURN(ResumePoint point, Find(options));
  if (point.path.empty()) return point;
  ZERO_RETURN_IF_ERROR(PassOverDamaged(options, point));
  ZERO_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(point.path));
  ZERO_RETURN_IF_ERROR(
      ReadRunState(point.path, manifest.step, manifest.attributes, options, model, data).status());
  ZERO_RETURN_IF_ERROR(CheckStates(point.path, manifest, options, model));
  return point;
}

}  // namespace

Attributes RunAttributes(const Options& options, const llama::LlamaConfig& model,
                         const llama::TokenDataset& data, int64_t position) {
  const DType dtype = ParseDType(options.dtype).value_or(DType::kF32);
  return {
      {"trainer", "zero-train"},
      {"seed", absl::StrCat(options.seed)},
      {"shuffle", options.shuffle ? "true" : "false"},
      {"sequence_length", absl::StrCat(options.sequence_length)},
      {"data", absl::StrCat(data.Summary(), ", hash ", absl::Hex(data.hash(), absl::kZeroPad16))},
      {kPosition, absl::StrCat(position)},
      {kSamples, absl::StrCat(SamplesPerStep(DealingOf(options, 0)))},
      {kModel, llama::ToJson(model, dtype).value_or("")}};
}

absl::StatusOr<RunState> ReadRunState(const std::string& path, int64_t step,
                                      const Attributes& attributes, const Options& options,
                                      const llama::LlamaConfig& model,
                                      const llama::TokenDataset& data) {
  RunState state;
  // Weights that were made into a checkpoint: nothing has been taken from any data.
  if (step == 0 && attributes.empty()) return state;
  std::vector<std::string> missing;
  Problems problems;
  for (const auto& [key, now] : RunAttributes(options, model, data, 0)) {
    const auto found = attributes.find(key);
    if (found == attributes.end()) {
      missing.push_back(absl::StrCat("'", key, "'"));
      continue;
    }
    const std::string& saved = found->second;
    if (key == kPosition) {
      if (!absl::SimpleAtoi(saved, &state.position) || state.position < 0) {
        problems.Add(absl::StrCat(key, " is '", saved, "', which is no number of samples"));
      }
    } else if (key == kModel) {
      const absl::StatusOr<llama::LlamaConfig> config = llama::ParseConfig(saved, key);
      const std::string difference =
          config.ok() ? ModelDifference(*config, model) : std::string(config.status().message());
      if (!difference.empty()) problems.Add(difference);
    } else if (saved == now) {
      continue;
    } else if (key == kSamples) {
      state.notes.push_back(absl::StrCat("a step took ", saved, " samples before, and takes ", now,
                                         " now; the data go on where they were"));
    } else {
      problems.Add(absl::StrCat(key, " is ", saved, " in the checkpoint, ", now, " now"));
    }
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": lacks ", absl::StrJoin(missing, ", "),
                     missing.size() == 1 ? ", an attribute" : ", attributes",
                     " without which the run would not go on as it was"));
  }
  if (problems.empty()) return state;
  return absl::InvalidArgumentError(absl::StrCat(path, ": is of another run: ", problems.text()));
}

std::string CheckpointBefore(const std::string& path, const std::string& folder) {
  if (folder.empty()) return "";
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(path);
  const absl::StatusOr<std::vector<FoundCheckpoint>> found = FindCheckpoints(folder);
  std::string before;
  if (!manifest.ok() || !found.ok()) return before;
  for (const FoundCheckpoint& checkpoint : *found) {
    if (checkpoint.step < manifest->step) before = checkpoint.path;
  }
  return before;
}

absl::StatusOr<ResumePoint> PrepareCheckpoints(const Options& options,
                                               const llama::LlamaConfig& model,
                                               const llama::TokenDataset& data) {
  if (!options.checkpoint_dir.empty()) {
    absl::Status status = CleanCheckpoints(options.checkpoint_dir);
    if (status.ok()) status = CheckNames(options.checkpoint_dir);
    if (!status.ok()) return Prefixed("--checkpoint_dir", status);
  }
  absl::StatusOr<ResumePoint> point = ResumePoint();
  if (!options.resume.empty()) {
    point = FindResumePoint(options, model, data);
    if (!point.ok()) return Prefixed("--resume", point.status());
  }
  if (!options.checkpoint_dir.empty()) ZERO_RETURN_IF_ERROR(CheckLater(options, *point));
  return point;
}

}  // namespace zero::train
