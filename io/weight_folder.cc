#include "io/weight_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/folder.h"
#include "io/problems.h"
#include "io/safetensors_layout.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kIndexLimit = 64 << 20;  // bytes; the index of 100,000 tensors has 10 MB

absl::Status Wrong(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// A file of weights that is none of the two; empty if there is none.
std::string OtherWeights(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return "";
  for (const std::string& name : *names) {
    if (absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".gguf") ||
        absl::StartsWith(name, "pytorch_model")) {
      return name;
    }
  }
  return "";
}

bool IsBelow(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// Where a link in `folder` leads that it must not lead to; empty if there is nothing wrong.
std::string Escape(const std::string& folder, const std::string& name) {
  std::error_code error;
  const fs::path home = fs::canonical(folder, error);
  if (error) return "";
  const fs::path file = fs::canonical(home / name, error);
  if (error || IsBelow(file, home)) return "";
  // The cache of the hub: snapshots/<commit>/<name> is a link to blobs/<hash>.
  const fs::path snapshots = home.parent_path();
  if (snapshots.filename() == "snapshots" && IsBelow(file, snapshots.parent_path() / "blobs")) {
    return "";
  }
  return file.string();
}

absl::StatusOr<WeightIndex> ReadIndex(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path, kIndexLimit));
  absl::StatusOr<WeightIndex> index = ParseWeightIndex(text);
  if (!index.ok()) return Wrong(path, std::string(index.status().message()));
  return index;
}

// "1 tensor", "2 tensors"
std::string Count(size_t count) { return absl::StrCat(count, count == 1 ? " tensor" : " tensors"); }

// The files of `index`, each checked to be there.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path, const std::string& folder,
                                                 const WeightIndex& index) {
  std::map<std::string, std::vector<std::string>> tensors;  // of each file
  for (const auto& [tensor, file] : index.file_of) tensors[file].push_back(tensor);
  Problems missing;
  Problems outside;
  std::vector<std::string> names;
  for (const auto& [name, of_file] : tensors) {
    names.push_back(name);
    if (!Exists(fs::path(folder) / name)) {
      missing.Add(absl::StrCat(name, " is missing, which should hold ", Count(of_file.size()), ": ",
                               DescribeTensor(of_file.front()), of_file.size() > 1 ? ", ..." : ""));
    }
    const std::string escape = Escape(folder, name);
    if (!escape.empty()) {
      outside.Add(absl::StrCat(name, " is a link out of the folder, to ", escape));
    }
  }
  if (!missing.empty()) return absl::NotFoundError(absl::StrCat(path, ": ", missing.text()));
  if (!outside.empty()) return Wrong(path, outside.text());
  return names;
}

}  // namespace

absl::StatusOr<bool> WeightFolder::In(const std::string& folder) {
  if (Exists(fs::path(folder) / kWeightFileName) || Exists(fs::path(folder) / kWeightIndexName)) {
    return true;
  }
  const std::string other = OtherWeights(folder);
  if (other.empty()) return false;
  return Wrong(folder, absl::StrCat("holds '", other, "', but weights are read from ",
                                    kWeightFileName, " or from the files of ", kWeightIndexName));
}

absl::StatusOr<WeightFolder> WeightFolder::Open(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const bool any, In(folder));
  const std::string file = (fs::path(folder) / kWeightFileName).string();
  const std::string index_path = (fs::path(folder) / kWeightIndexName).string();
  if (!any) {
    return absl::NotFoundError(
        absl::StrCat(file, ": no such file, and no ", kWeightIndexName, " beside it"));
  }
  // The single file comes first, as for transformers.
  if (!Exists(file)) {
    WeightFolder weights(index_path);
    ZERO_ASSIGN_OR_RETURN(const WeightIndex index, ReadIndex(index_path));
    ZERO_RETURN_IF_ERROR(weights.OpenIndexed(folder, index));
    return weights;
  }
  WeightFolder weights(file);
  ZERO_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(file));
  weights.files_.push_back(std::move(opened));
  for (const SafetensorsTensor& tensor : weights.files_[0].tensors()) weights.Add(tensor, 0);
  if (Exists(index_path)) {
    weights.notes_.push_back(absl::StrCat(kWeightIndexName, " and what it names are passed over: ",
                                          kWeightFileName, " is there, and comes first"));
  }
  return weights;
}

void WeightFolder::Add(const SafetensorsTensor& tensor, size_t file) {
  tensors_[tensor.name] = tensor;
  file_of_[tensor.name] = file;
}

absl::Status WeightFolder::OpenIndexed(const std::string& folder, const WeightIndex& index) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> names, FilesOf(path_, folder, index));
  for (const std::string& name : names) {
    ZERO_ASSIGN_OR_RETURN(SafetensorsFile file,
                          SafetensorsFile::Open((fs::path(folder) / name).string()));
    files_.push_back(std::move(file));
  }
  ZERO_RETURN_IF_ERROR(AddIndexed(names, index));
  NotePassedOver(folder, names);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.bytes();
  if (index.total_size.has_value() && *index.total_size != bytes) {
    notes_.push_back(absl::StrCat(kWeightIndexName, " says that the tensors have ",
                                  *index.total_size, " bytes, but they have ", bytes));
  }
  return absl::OkStatus();
}

absl::Status WeightFolder::AddIndexed(const std::vector<std::string>& names,
                                      const WeightIndex& index) {
  std::map<std::string, std::vector<std::string>> found;  // in which files
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<std::string> unlisted;
    for (const SafetensorsTensor& tensor : files_[i].tensors()) {
      const auto listed = index.file_of.find(tensor.name);
      if (listed == index.file_of.end()) {
        unlisted.push_back(tensor.name);
        continue;
      }
      found[tensor.name].push_back(names[i]);
      if (listed->second == names[i]) Add(tensor, i);
    }
    if (!unlisted.empty()) {
      notes_.push_back(
          absl::StrCat(Count(unlisted.size()), " of ", names[i], " not in the index and left out: ",
                       DescribeTensor(unlisted.front()), unlisted.size() > 1 ? ", ..." : ""));
    }
  }
  Problems problems;
  for (const auto& [tensor, file] : index.file_of) {
    const std::vector<std::string>& in = found[tensor];
    if (in.empty()) {
      problems.Add(
          absl::StrCat(DescribeTensor(tensor), " is not in ", file, ", as the index says"));
    } else if (in.size() > 1) {
      problems.Add(absl::StrCat(DescribeTensor(tensor), " is in ", in[0], " and in ", in[1]));
    } else if (in[0] != file) {
      problems.Add(
          absl::StrCat(DescribeTensor(tensor), " is in ", in[0], ", the index says in ", file));
    }
  }
  return problems.empty() ? absl::OkStatus() : Wrong(path_, problems.text());
}

void WeightFolder::NotePassedOver(const std::string& folder,
                                  const std::vector<std::string>& names) {
  const absl::StatusOr<std::vector<std::string>> all = ListFolder(folder);
  if (!all.ok()) return;
  for (const std::string& name : *all) {
    if (!absl::EndsWith(name, ".safetensors") || absl::StartsWith(name, ".") ||
        std::binary_search(names.begin(), names.end(), name)) {
      continue;
    }
    notes_.push_back(absl::StrCat(name, " is not in the index and passed over"));
  }
}

absl::StatusOr<const SafetensorsFile*> WeightFolder::FileOf(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found != file_of_.end()) return &files_[found->second];
  return absl::NotFoundError(
      absl::StrCat(path_, ": no ", DescribeTensor(name), " among ", tensors_.size(), " tensors"));
}

absl::Status WeightFolder::Read(const std::string& name, int64_t first,
                                absl::Span<float> out) const {
  ZERO_ASSIGN_OR_RETURN(const SafetensorsFile* file, FileOf(name));
  return file->Read(name, first, out);
}

absl::Status WeightFolder::ReadBytes(const std::string& name, int64_t first,
                                     absl::Span<char> out) const {
  ZERO_ASSIGN_OR_RETURN(const SafetensorsFile* file, FileOf(name));
  return file->ReadBytes(name, first, out);
}

}  // namespace zero
