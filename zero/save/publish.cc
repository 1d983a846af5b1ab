#include "zero/save/publish.h"

#include <sys/stat.h>

#include <cerrno>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/folder.h"
#include "io/posix_file.h"
#include "io/weight_index.h"

namespace zero {
namespace {

// A name that is taken, by a dangling link too.
bool Exists(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0;
}

absl::Status Move(const std::string& from, const std::string& to) {
  if (Files().Rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return PosixError(from, absl::StrCat("cannot rename it to ", to), errno);
}

absl::Status Remove(const std::string& path) {
  if (Files().Unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return PosixError(path, "cannot remove the file", errno);
}

class Publisher {
 public:
  explicit Publisher(const StagedModel& model) : model_(model) {}

  // Everything up to the last rename. What it did can be taken back.
  absl::Status Prepare() {
    ZERO_RETURN_IF_ERROR(RefuseFolders());
    ZERO_RETURN_IF_ERROR(MakeFolders(Old("")));
    for (const std::string& name : model_.others) {
      // The name stays in use, so that the file is there at any time.
      if (Exists(Target(name))) ZERO_RETURN_IF_ERROR(CopyWhole(Target(name), Old(name)));
    }
    if (model_.index) ZERO_RETURN_IF_ERROR(ReplaceShards());
    for (const std::string& name : model_.others) {
      const bool there = Exists(Old(name));
      ZERO_RETURN_IF_ERROR(Move(New(name), Target(name)));
      undo_.push_back([this, name, there] {
        return there ? Move(Old(name), Target(name)) : Remove(Target(name));
      });
    }
    return SyncFolder(model_.target);
  }

  // The rename that makes the new weights the model; where there is an index and a single file,
  // which readers take in different order, there are two.
  absl::Status Commit() {
    const std::string other = model_.index ? kWeightFileName : kWeightIndexName;
    const bool two = Exists(Target(other));
    if (two && Exists(Target(LastName()))) ZERO_RETURN_IF_ERROR(MoveAside(LastName()));
    ZERO_RETURN_IF_ERROR(Move(New(LastName()), Target(LastName())));
    if (!two) return absl::OkStatus();
    undo_.push_back([this] { return Move(Target(LastName()), New(LastName())); });
    return MoveAside(other);
  }

  // What the new model does not have, which nothing points at any more.
  absl::Status RemoveOld() const {
    ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(model_.target));
    const std::set<std::string> keep(model_.weights.begin(), model_.weights.end());
    std::vector<std::string> stale;
    for (const std::string& name : names) {
      const bool kept = keep.count(name) != 0 || (model_.index && name == kWeightIndexName);
      if (IsWeightFileName(name) && !kept) stale.push_back(name);
    }
    for (const std::string& name : stale) ZERO_RETURN_IF_ERROR(Remove(Target(name)));
    return stale.empty() ? absl::OkStatus() : SyncFolder(model_.target);
  }

  // Takes back what Prepare did; false, and why in `reason`: not all of it.
  bool Undo(std::string& reason) {
    for (auto at = undo_.rbegin(); at != undo_.rend(); ++at) {
      const absl::Status undone = (*at)();
      if (undone.ok()) continue;
      reason = std::string(undone.message());
      return false;
    }
    return true;
  }

 private:
  std::string New(const std::string& name) const { return model_.staging + "/" + name; }
  std::string Old(const std::string& name) const { return model_.staging + "/old/" + name; }
  std::string Target(const std::string& name) const { return model_.target + "/" + name; }
  std::string LastName() const { return model_.index ? kWeightIndexName : model_.weights.front(); }

  // A rename onto a folder fails, perhaps halfway through the list.
  absl::Status RefuseFolders() const {
    std::vector<std::string> names = model_.weights;
    names.insert(names.end(), model_.others.begin(), model_.others.end());
    names.push_back(kWeightIndexName);
    names.push_back(kWeightFileName);
    for (const std::string& name : names) {
      struct stat info = {};
      if (stat(Target(name).c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
        return absl::FailedPreconditionError(
            absl::StrCat(Target(name), ": is a folder, in the place of a file"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MoveAside(const std::string& name) {
    ZERO_RETURN_IF_ERROR(Move(Target(name), Old(name)));
    undo_.push_back([this, name] { return Move(Old(name), Target(name)); });
    return absl::OkStatus();
  }

  absl::Status ReplaceShards() {
    std::vector<std::string> replaced;
    for (const std::string& name : model_.weights) {
      if (Exists(Target(name))) replaced.push_back(name);
    }
    if (!replaced.empty() && Exists(Target(kWeightIndexName))) {
      ZERO_RETURN_IF_ERROR(MoveAside(kWeightIndexName));
      ZERO_RETURN_IF_ERROR(SyncFolder(model_.target));
    }
    for (const std::string& name : replaced) ZERO_RETURN_IF_ERROR(MoveAside(name));
    for (const std::string& name : model_.weights) {
      ZERO_RETURN_IF_ERROR(Move(New(name), Target(name)));
      undo_.push_back([this, name] { return Move(Target(name), New(name)); });
    }
    return SyncFolder(model_.target);
  }

  const StagedModel& model_;
  std::vector<std::function<absl::Status()>> undo_;  // first done first
};

}  // namespace

Published PublishModel(const StagedModel& model) {
  Publisher publisher(model);
  Published published;
  published.status = publisher.Prepare();
  if (published.status.ok()) published.status = publisher.Commit();
  if (!published.status.ok()) {
    std::string reason;
    if (!publisher.Undo(reason)) {
      published.abandoned = true;
      published.status = absl::DataLossError(
          absl::StrCat(published.status.message(), "; and old files could not be put back (",
                       reason, "), they are in ", model.staging, "/old"));
    }
    return published;
  }
  published.status = SyncFolder(model.target);
  if (published.status.ok()) published.status = publisher.RemoveOld();
  if (published.status.ok()) published.status = RemoveTree(model.staging);
  for (const std::string& path : model.leftovers) {
    if (published.status.ok()) published.status = RemoveTree(path);
  }
  if (!published.status.ok()) {
    published.status = absl::Status(
        published.status.code(), absl::StrCat("the new weights have replaced the old ones, but: ",
                                              std::string(published.status.message())));
  }
  return published;
}

}  // namespace zero
