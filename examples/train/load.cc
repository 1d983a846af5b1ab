#include "examples/train/load.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/llama/model_description.h"
#include "io/problems.h"

namespace zero::train {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The keys of config.json that the shape of a parameter follows from.
const char* KeysOf(const std::string& parameter) {
  const auto ends = [&](const char* end) { return absl::EndsWith(parameter, end); };
  if (ends("embed_tokens.weight") || ends("lm_head.weight")) return "vocab_size, hidden_size";
  if (ends("norm.weight")) return "hidden_size";
  if (ends("q_proj.weight") || ends("o_proj.weight")) {
    return "num_attention_heads, head_dim, hidden_size";
  }
  if (ends("k_proj.weight") || ends("v_proj.weight")) {
    return "num_key_value_heads, head_dim, hidden_size";
  }
  return "intermediate_size, hidden_size";
}

// Buffers that old files hold beside the weights; config.json says what is in them.
bool IsRotaryBuffer(const std::string& name) {
  const std::vector<std::string> patterns = LoadWeightsOptions().ignored;
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

bool IsReadable(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// What a parameter is called in the files: its name, or an alias, or several. None: the reason is
// in `problems`.
std::vector<std::string> FindParameter(const WeightFolder& files, const Parameter& parameter,
                                       Problems& problems) {
  std::vector<std::string> names = {parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (files.tensors().count(name) != 0) found.push_back(name);
  }
  if (found.empty()) {
    const bool head = parameter.name == "lm_head.weight";
    problems.Add(absl::StrCat("tensor '", parameter.name, "' of shape ", ShapeText(parameter.shape),
                              " is missing",
                              head ? "; config.json says tie_word_embeddings false" : ""));
  }
  return found;
}

void CheckTensor(const SafetensorsTensor& tensor, const Parameter& parameter, Problems& problems) {
  if (!IsReadable(tensor.dtype)) {
    problems.Add(absl::StrCat("tensor '", tensor.name, "' is ", tensor.dtype,
                              "; F32, BF16 and F16 can be read"));
  } else if (tensor.shape != parameter.shape) {
    problems.Add(absl::StrCat("tensor '", tensor.name, "' has shape ", ShapeText(tensor.shape),
                              "; config.json (", KeysOf(parameter.name), ") makes it ",
                              ShapeText(parameter.shape)));
  }
}

}  // namespace

absl::StatusOr<SavedWeights> SavedWeights::Open(const std::string& folder,
                                                const llama::LlamaConfig& config) {
  ZERO_ASSIGN_OR_RETURN(WeightFolder files, WeightFolder::Open(folder));
  SavedWeights saved(folder, std::move(files));
  Problems problems;
  std::set<std::string> known;
  for (const Unit& unit : llama::DescribeModel(config, DType::kF32).units) {
    for (const Parameter& parameter : unit.parameters) {
      known.insert(parameter.name);
      known.insert(parameter.aliases.begin(), parameter.aliases.end());
      for (const std::string& name : FindParameter(saved.files_, parameter, problems)) {
        CheckTensor(saved.files_.tensors().at(name), parameter, problems);
        saved.name_in_file_.emplace(parameter.name, name);
      }
    }
  }
  for (const auto& [name, tensor] : saved.files_.tensors()) {
    if (known.count(name) != 0) continue;
    if (IsRotaryBuffer(name)) {
      saved.ignored_.push_back(name);
    } else {
      problems.Add(absl::StrCat("tensor '", name, "' of shape ", ShapeText(tensor.shape),
                                " is none of the model that config.json describes"));
    }
  }
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(saved.files_.path(), ": ", problems.text()));
  }
  return saved;
}

absl::Status SavedWeights::Load(ShardedOptimizer& optimizer) const {
  const absl::StatusOr<WeightsLoaded> loaded = optimizer.LoadWeights(folder_);
  if (!loaded.ok()) {
    const std::string message(loaded.status().message());
    const bool tied = absl::StrContains(message, "are one tensor of the model");
    return absl::Status(
        loaded.status().code(),
        tied ? absl::StrCat(message, ": config.json says tie_word_embeddings true") : message);
  }
  if (loaded->overflowed == 0) return absl::OkStatus();
  const std::string others =
      loaded->overflowed == 1 ? "" : absl::StrCat(", and ", loaded->overflowed - 1, " more values");
  return absl::InvalidArgumentError(
      absl::StrCat(files_.path(), ": ", loaded->first_overflowed, others));
}

DType SavedWeights::dtype() const {
  std::set<std::string> dtypes;
  for (const auto& [parameter, name] : name_in_file_) {
    dtypes.insert(files_.tensors().at(name).dtype);
  }
  if (dtypes == std::set<std::string>{"BF16"}) return DType::kBF16;
  return dtypes == std::set<std::string>{"F16"} ? DType::kF16 : DType::kF32;
}

std::string SavedWeights::Summary() const {
  std::set<std::string> dtypes;
  int64_t bytes = 0;
  for (const auto& [parameter, name] : name_in_file_) {
    dtypes.insert(files_.tensors().at(name).dtype);
    bytes += files_.tensors().at(name).bytes();
  }
  return absl::StrCat(name_in_file_.size(), " tensors of ", absl::StrJoin(dtypes, ", "), ", ",
                      bytes, " bytes");
}

std::string SavedWeights::Ignored() const {
  if (ignored_.empty()) return "";
  return absl::StrCat(ignored_.size(), " buffers of rotary embeddings, which config.json gives: '",
                      ignored_.front(), ignored_.size() > 1 ? "', ..." : "'");
}

absl::StatusOr<SavedModel> OpenModelFolder(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", folder, "' is no folder; it must hold config.json and model.safetensors"));
  }
  ZERO_ASSIGN_OR_RETURN(llama::LlamaConfig config, llama::ReadConfig(folder));
  ZERO_ASSIGN_OR_RETURN(SavedWeights weights, SavedWeights::Open(folder, config));
  const DType dtype = weights.dtype();
  Model model = llama::DescribeModel(config, dtype);
  for (Unit& unit : model.units) {
    for (Parameter& parameter : unit.parameters) parameter.trainable = false;
  }
  return SavedModel{std::move(config), std::move(weights), dtype, std::move(model)};
}

}  // namespace zero::train
