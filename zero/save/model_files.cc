#include "zero/save/model_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/folder.h"
#include "io/posix_file.h"
#include "io/weight_index.h"
#include "zero/save/publish.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

// Not to be copied: weights in any of the usual forms, and what says where they are.
bool IsOtherWeights(const std::string& name) {
  for (const char* end : {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json"}) {
    if (absl::EndsWithIgnoreCase(name, end)) return true;
  }
  return false;
}

// The files of copy_from that are to be copied into `target`.
absl::StatusOr<std::vector<std::string>> FilesToCopy(const SaveWeightsOptions& options,
                                                     const std::string& target) {
  std::vector<std::string> names;
  std::error_code error;
  if (options.copy_from.empty() || fs::equivalent(options.copy_from, target, error)) return names;
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all, ListFolder(options.copy_from));
  for (const std::string& name : all) {
    const bool given = std::any_of(options.files.begin(), options.files.end(),
                                   [&](const auto& file) { return file.first == name; });
    const bool file = fs::is_regular_file(fs::path(options.copy_from) / name, error);
    if (file && !given && !IsOtherWeights(name)) names.push_back(name);
  }
  return names;
}

}  // namespace

absl::Status CheckSaveOptions(const std::string& folder, const SaveWeightsOptions& options) {
  const auto wrong = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("SaveWeights: ", parts...));
  };
  if (folder.empty()) return wrong("the folder has no name");
  if (options.max_shard_bytes < 1) {
    return wrong("max_shard_bytes is ", options.max_shard_bytes, "; it must be at least 1");
  }
  std::set<std::string> names;
  for (const auto& [name, content] : options.files) {
    if (name.empty() || name.front() == '.' || name != fs::path(name).filename().string() ||
        IsOtherWeights(name)) {
      return wrong("'", name, "' is no name of a file beside the weights");
    }
    if (!names.insert(name).second) return wrong("file '", name, "' is given twice");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> StageFiles(const SaveWeightsOptions& options,
                                                    const WeightFilesPlan& plan,
                                                    const StagingFolder& folder,
                                                    WeightFilesWriter& writer) {
  ZERO_RETURN_IF_ERROR(writer.Create());
  const auto path_of = [&](const std::string& name) { return folder.path() + "/" + name; };
  if (!plan.index.empty()) {
    ZERO_RETURN_IF_ERROR(WriteWhole(path_of(kWeightIndexName), plan.index));
  }
  ZERO_ASSIGN_OR_RETURN(std::vector<std::string> others, FilesToCopy(options, folder.target()));
  for (const std::string& name : others) {
    ZERO_RETURN_IF_ERROR(CopyWhole(options.copy_from + "/" + name, path_of(name)));
  }
  for (const auto& [name, content] : options.files) {
    ZERO_RETURN_IF_ERROR(WriteWhole(path_of(name), content));
    others.push_back(name);
  }
  return others;
}

absl::Status CheckStaged(const StagingFolder& folder, const WeightFilesWriter& writer) {
  ZERO_RETURN_IF_ERROR(writer.Verify());
  return SyncFolder(folder.path());
}

absl::Status PublishStaged(StagingFolder& folder, const WeightFilesPlan& plan,
                           const std::vector<std::string>& others) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers, folder.Others());
  const Published published = PublishModel(
      {folder.target(), folder.path(), plan.names(), !plan.index.empty(), others, leftovers});
  if (published.abandoned) folder.Abandon();
  ZERO_RETURN_IF_ERROR(published.status);
  folder.Keep();
  return absl::OkStatus();
}

}  // namespace zero
