#include "examples/train/overwrite.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/posix_file.h"
#include "io/weight_index.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero::train {
namespace {

namespace fs = std::filesystem;

struct NamedFile {
  std::string flag;
  fs::path path;
};

bool SameFile(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;  // false where one does not exist
  return fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error);
}

std::vector<NamedFile> Inputs(const Options& options) {
  std::error_code error;
  std::vector<NamedFile> inputs = {{"--data", options.data}, {"--model", options.model}};
  if (fs::is_directory(options.model, error)) {
    inputs.back().path /= "config.json";
    for (const auto& entry : fs::directory_iterator(options.model, error)) {
      const std::string name = entry.path().filename().string();
      if (absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".safetensors.index.json")) {
        inputs.push_back({"--model", entry.path()});
      }
    }
  }
  if (!options.evaluate_data.empty()) inputs.push_back({"--evaluate_data", options.evaluate_data});
  if (!options.config.empty()) inputs.push_back({"--config", options.config});
  return inputs;
}

std::vector<NamedFile> Targets(const Options& options) {
  std::vector<NamedFile> targets;
  if (!options.metrics.empty()) targets.push_back({"--metrics", options.metrics});
  if (!options.output.empty()) {
    for (const char* name : {"model.safetensors", "config.json"}) {
      targets.push_back({"--output", fs::path(options.output) / name});
    }
  }
  return targets;
}

absl::Status CheckFolders(const Options& options) {
  const std::string metrics = options.metrics.empty() ? "" : FolderOf(options.metrics);
  for (const auto& [flag, path] :
       {std::pair("--output", &options.output), std::pair("--metrics", &metrics),
        std::pair("--checkpoint_dir", &options.checkpoint_dir)}) {
    const bool resumed = !options.resume.empty() && SameFile(*path, options.resume);
    ZERO_RETURN_IF_ERROR(RefuseCheckpoint(flag, *path, resumed ? ", that of --resume" : ""));
  }
  std::error_code error;
  if (!options.checkpoint_dir.empty() && fs::is_directory(options.model, error) &&
      SameFile(options.checkpoint_dir, options.model)) {
    return absl::InvalidArgumentError(absl::StrCat("--checkpoint_dir: '", options.checkpoint_dir,
                                                   "' is the folder of --model; give it another "
                                                   "place"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseCheckpoint(const std::string& flag, const std::string& path,
                              const std::string& which) {
  std::error_code error;
  if (path.empty() || !fs::is_directory(path, error)) return absl::OkStatus();
  if (absl::IsNotFound(ReadManifest(path).status())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": '", path, "' is a checkpoint", which,
                                                 ", which nothing may be written into; give it "
                                                 "another place"));
}

absl::Status CheckOverwrites(const Options& options) {
  ZERO_RETURN_IF_ERROR(CheckFolders(options));
  std::vector<NamedFile> used = Inputs(options);
  const auto refused = [](const char* flag, const NamedFile& other) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " would write over '", other.path.string(),
                                                   "' of ", other.flag, "; give it another place"));
  };
  for (const NamedFile& target : Targets(options)) {
    for (const NamedFile& other : used) {
      if (SameFile(target.path, other.path)) return refused(target.flag.c_str(), other);
    }
    used.push_back(target);
  }
  // Shards and an index of older weights go, too.
  for (const NamedFile& other : used) {
    if (options.output.empty() || other.flag == "--output") continue;
    if (IsWeightFileName(other.path.filename().string()) &&
        SameFile(options.output, FolderOf(other.path.string()))) {
      return refused("--output", other);
    }
  }
  return absl::OkStatus();
}

}  // namespace zero::train
