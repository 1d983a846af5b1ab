#include "examples/train/weight_files.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/train/problems.h"

namespace zero::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

absl::Status Wrong(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// A file of weights that is none of the two; empty if there is none.
std::string OtherWeights(const std::string& folder) {
  std::error_code error;
  std::set<std::string> found;  // the same one whatever the order of the folder
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".gguf") ||
        absl::StartsWith(name, "pytorch_model")) {
      found.insert(name);
    }
  }
  return found.empty() ? "" : *found.begin();
}

// The "weight_map" of an index: tensor name to file name.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  // nlohmann_json throws; nothing may leave this file as an exception.
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (in.bad()) return Wrong(path, "cannot be read");
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return Wrong(path,
                 "must be a JSON object with an object \"weight_map\" of tensor names "
                 "and the files that hold them");
  }
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name != fs::path(name).filename().string() || name == ".." || name == ".") {
      return Wrong(path, absl::StrCat("tensor '", tensor, "' is in ", file.dump(),
                                      "; it must be the name of a file in the same folder"));
    }
    map[tensor] = name;
  }
  return map;
}

}  // namespace

absl::StatusOr<bool> WeightFiles::In(const std::string& folder) {
  const bool file = Exists(fs::path(folder) / kFile);
  const bool index = Exists(fs::path(folder) / kIndex);
  if (file && index) {
    return Wrong(folder, absl::StrCat("holds ", kFile, " and ", kIndex, "; keep one of them"));
  }
  if (file || index) return true;
  const std::string other = OtherWeights(folder);
  if (!other.empty()) {
    return Wrong(folder, absl::StrCat("holds '", other, "', but weights are read from ", kFile,
                                      " or from the files of ", kIndex));
  }
  return false;
}

absl::StatusOr<WeightFiles> WeightFiles::Open(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(const bool any, In(folder));
  const std::string file = folder + "/" + kFile;
  if (!any) return Wrong(file, absl::StrCat("no such file, and no ", kIndex, " beside it"));
  if (Exists(file)) {
    WeightFiles weights(file);
    ZERO_ASSIGN_OR_RETURN(const SafetensorsFile opened, SafetensorsFile::Open(file));
    ZERO_RETURN_IF_ERROR(weights.Add(opened));
    return weights;
  }
  WeightFiles weights(folder + "/" + kIndex);
  ZERO_ASSIGN_OR_RETURN(const auto map, ReadIndex(weights.path_));
  std::set<std::string> names;
  for (const auto& [tensor, name] : map) names.insert(name);
  Problems problems;
  for (const std::string& name : names) {
    ZERO_ASSIGN_OR_RETURN(const SafetensorsFile opened, SafetensorsFile::Open(folder + "/" + name));
    for (const SafetensorsTensor& tensor : opened.tensors()) {
      const auto found = map.find(tensor.name);
      if (found == map.end()) {
        problems.Add(absl::StrCat("tensor '", tensor.name, "' of ", name, " is not in the index"));
      } else if (found->second != name) {
        problems.Add(absl::StrCat("tensor '", tensor.name, "' is in ", name, ", the index says in ",
                                  found->second));
      }
    }
    for (const auto& [tensor, in] : map) {
      if (in == name && !opened.Find(tensor).ok()) {
        problems.Add(absl::StrCat("tensor '", tensor, "' is not in ", name, ", as the index says"));
      }
    }
    if (problems.empty()) ZERO_RETURN_IF_ERROR(weights.Add(opened));
  }
  if (!problems.empty()) return Wrong(weights.path_, problems.text());
  return weights;
}

absl::Status WeightFiles::Add(const SafetensorsFile& file) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (!tensors_.emplace(tensor.name, tensor).second) {
      return absl::InternalError(absl::StrCat("tensor '", tensor.name, "' comes twice"));
    }
    file_of_[tensor.name] = files_.size();
  }
  files_.push_back(file);
  return absl::OkStatus();
}

absl::Status WeightFiles::Read(const std::string& name, int64_t first,
                               absl::Span<float> out) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": no tensor '", name, "'"));
  }
  return files_[found->second].Read(name, first, out);
}

}  // namespace zero::train
