#include "zero/save/checkpoint_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "io/folder.h"
#include "zero/save/checkpoint_manifest.h"
#include "zero/save/checkpoint_reader.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

// What a name says about a folder that is, or may become, a checkpoint.
enum class Kind { kNamed, kTemporary, kRemoved };

Kind KindOf(const std::string& name) {
  if (!absl::StartsWith(name, ".step-")) return Kind::kNamed;
  if (absl::EndsWith(name, ".removed")) return Kind::kRemoved;
  return absl::EndsWith(name, ".tmp") ? Kind::kTemporary : Kind::kNamed;
}

// Ends the name of one whose place another one takes.
constexpr const char* kReplaced = ".replaced.tmp";

struct Candidate {
  std::string name;
  std::string path;
  Kind kind = Kind::kNamed;
  absl::StatusOr<int64_t> step = 0;  // or why it is not complete
};

bool IsFolder(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<int64_t> StepOf(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  ZERO_RETURN_IF_ERROR(CheckCheckpointName(path, reader.manifest().step));
  return reader.manifest().step;
}

// Every folder in `folder`, complete ones by step and kind, the others after them.
absl::StatusOr<std::vector<Candidate>> Candidates(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  std::vector<Candidate> candidates;
  for (const std::string& name : names) {
    Candidate candidate;
    candidate.name = name;
    candidate.path = absl::StrCat(folder, "/", name);
    candidate.kind = KindOf(name);
    if (!IsFolder(candidate.path)) continue;
    if (candidate.kind == Kind::kRemoved) {
      candidate.step = absl::NotFoundError(absl::StrCat(candidate.path, ": is being removed"));
    } else {
      candidate.step = StepOf(candidate.path);
    }
    candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::make_tuple(a.step.value_or(INT64_MAX), a.kind) <
                            std::make_tuple(b.step.value_or(INT64_MAX), b.kind);
                   });
  return candidates;
}

// A folder that has nothing to do with checkpoints.
bool IsForeign(const Candidate& candidate) {
  return absl::IsNotFound(candidate.step.status()) && !absl::StrContains(candidate.name, "step-");
}

// Takes the checkpoint out of the list in one step, then removes what it consists of.
absl::Status Remove(const std::string& folder, const std::string& name) {
  const std::string dot = absl::StartsWith(name, ".") ? "" : ".";
  const std::string removed = absl::StrCat(folder, "/", dot, name, ".removed");
  ZERO_RETURN_IF_ERROR(RemoveTree(removed));  // of a removal that was interrupted
  ZERO_RETURN_IF_ERROR(Rename(absl::StrCat(folder, "/", name), removed));
  return RemoveTree(removed);
}

}  // namespace

std::string CheckpointName(int64_t step) { return absl::StrFormat("step-%08d", step); }

absl::Status CheckCheckpointName(const std::string& path, int64_t step) {
  fs::path named = path;
  if (!named.has_filename()) named = named.parent_path();  // "a/b/"
  const std::string name = named.filename().string();
  int64_t number = 0;
  if (!absl::StartsWith(name, "step-") || !absl::SimpleAtoi(name.substr(5), &number) ||
      number == step) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(path, ": is called after step ", number, ", but its ",
                                          kManifestName, " is of step ", step, ", which is called ",
                                          CheckpointName(step)));
}

std::string TemporaryCheckpointName(int64_t step) {
  return absl::StrCat(".", CheckpointName(step), ".", RandomDigits(), ".tmp");
}

absl::Status PublishCheckpoint(const std::string& folder, const std::string& temporary,
                               int64_t step) {
  const std::string from = absl::StrCat(folder, "/", temporary);
  const std::string name = CheckpointName(step);
  const std::string path = absl::StrCat(folder, "/", name);
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return Rename(from, path);
  // Never less than one of them is complete under a name that is found.
  const std::string old = absl::StrCat(".", name, kReplaced);
  const std::string aside = absl::StrCat(folder, "/", old);
  ZERO_RETURN_IF_ERROR(RemoveTree(aside));  // of a replacement that was interrupted
  ZERO_RETURN_IF_ERROR(Rename(path, aside));
  const absl::Status renamed = Rename(from, path);
  if (!renamed.ok()) {
    (void)Rename(aside, path);
    return renamed;
  }
  return Remove(folder, old);
}

absl::StatusOr<std::vector<FoundCheckpoint>> FindCheckpoints(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(folder));
  std::vector<FoundCheckpoint> found;
  for (const Candidate& candidate : candidates) {
    if (candidate.step.ok()) found.push_back({candidate.path, *candidate.step});
  }
  return found;
}

absl::StatusOr<FoundCheckpoint> LatestCheckpoint(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(folder));
  std::vector<std::string> others;
  const Candidate* last = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.step.ok()) {
      last = &candidate;
    } else if (!IsForeign(candidate)) {
      others.emplace_back(candidate.step.status().message());
    }
  }
  FoundCheckpoint found;
  if (last != nullptr) found = {last->path, *last->step};
  for (const Candidate& candidate : candidates) {
    if (candidate.step.ok() || candidate.kind != Kind::kNamed) continue;
    if (candidate.name <= CheckpointName(last != nullptr ? *last->step : -1)) continue;
    if (!absl::StartsWith(candidate.name, "step-")) continue;
    const absl::Status& status = candidate.step.status();
    if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return status;
    found.passed_over.emplace_back(status.message());
  }
  if (last != nullptr) return found;
  constexpr size_t kShown = 5;
  const size_t more = others.size() - std::min(others.size(), kShown);
  others.resize(others.size() - more);
  if (more > 0) others.push_back(absl::StrCat("and ", more, " more"));
  return absl::NotFoundError(absl::StrCat(
      folder, ": holds no complete checkpoint",
      others.empty() ? "" : absl::StrCat("; not complete: ", absl::StrJoin(others, "; ")),
      ReadManifest(folder).ok() ? "; it is one itself" : ""));
}

absl::Status CleanCheckpoints(const std::string& folder) {
  const absl::StatusOr<std::vector<Candidate>> candidates = Candidates(folder);
  if (absl::IsNotFound(candidates.status())) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(candidates.status());
  for (const Candidate& candidate : *candidates) {
    if (candidate.kind == Kind::kNamed) continue;
    struct stat info = {};
    const std::string manifest = absl::StrCat(candidate.path, "/", kManifestName);
    const bool none = lstat(manifest.c_str(), &info) != 0 && errno == ENOENT;
    const std::string name = CheckpointName(candidate.step.value_or(0));
    const bool named = lstat(absl::StrCat(folder, "/", name).c_str(), &info) == 0;
    if (candidate.step.ok() && named && absl::EndsWith(candidate.name, kReplaced)) {
      ZERO_RETURN_IF_ERROR(Remove(folder, candidate.name));
    } else if (candidate.step.ok()) {
      ZERO_RETURN_IF_ERROR(PublishCheckpoint(folder, candidate.name, *candidate.step));
    } else if (none || candidate.kind == Kind::kRemoved) {
      // With a manifest all of it was there: what is wrong with it now may pass.
      ZERO_RETURN_IF_ERROR(RemoveTree(candidate.path));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PruneCheckpoints(const std::string& folder, int64_t newest,
                                                          int64_t keep_last, int64_t keep_every) {
  if (keep_last < 0 || keep_every < 0) {
    return absl::InvalidArgumentError(absl::StrCat("keep_last is ", keep_last, " and keep_every ",
                                                   keep_every, "; both must be 0 or more"));
  }
  std::vector<std::string> removed;
  if (keep_last == 0) return removed;
  ZERO_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, Candidates(folder));
  const auto other = [newest](const Candidate& candidate) {
    return !candidate.step.ok() || candidate.name != CheckpointName(*candidate.step) ||
           *candidate.step > newest;
  };
  candidates.erase(std::remove_if(candidates.begin(), candidates.end(), other), candidates.end());
  const auto count = static_cast<int64_t>(candidates.size());
  for (int64_t i = 0; i < count - keep_last; ++i) {
    if (keep_every > 0 && *candidates[i].step % keep_every == 0) continue;
    ZERO_RETURN_IF_ERROR(Remove(folder, candidates[i].name));
    removed.push_back(candidates[i].path);
  }
  return removed;
}

}  // namespace zero
