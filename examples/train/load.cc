#include "examples/train/load.h"

#include <cmath>
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
  return absl::StrContains(name, "rotary_emb.") && !absl::EndsWith(name, ".weight");
}

bool IsReadable(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// What a parameter is called in the files: its name, or where that is missing an alias. Empty, and
// the reason in `problems`: there is none, or two.
std::string FindParameter(const WeightFolder& files, const Parameter& parameter,
                          Problems& problems) {
  std::vector<std::string> names = {parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  std::string found;
  for (const std::string& name : names) {
    if (files.tensors().count(name) == 0) continue;
    if (!found.empty()) {
      problems.Add(absl::StrCat("'", found, "' and '", name, "' are both there, which are one ",
                                "matrix where tie_word_embeddings is true"));
      return "";
    }
    found = name;
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

// Whether a weight of `dtype` can stand for `value`.
bool Fits(float value, DType dtype) {
  constexpr float kF16Limit = 65520;  // rounds to inf, and everything above
  constexpr float kBF16Limit = 0x1.FFp127f;
  if (!std::isfinite(value)) return false;
  return std::fabs(value) < (dtype == DType::kF16    ? kF16Limit
                             : dtype == DType::kBF16 ? kBF16Limit
                                                     : HUGE_VALF);
}

}  // namespace

absl::StatusOr<SavedWeights> SavedWeights::Open(const std::string& folder,
                                                const llama::LlamaConfig& config) {
  ZERO_ASSIGN_OR_RETURN(WeightFolder files, WeightFolder::Open(folder));
  SavedWeights saved(std::move(files));
  Problems problems;
  std::set<std::string> known;
  for (const Unit& unit : llama::DescribeModel(config, DType::kF32).units) {
    for (const Parameter& parameter : unit.parameters) {
      known.insert(parameter.name);
      known.insert(parameter.aliases.begin(), parameter.aliases.end());
      const std::string name = FindParameter(saved.files_, parameter, problems);
      if (name.empty()) continue;
      CheckTensor(saved.files_.tensors().at(name), parameter, problems);
      saved.name_in_file_[parameter.name] = name;
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

Source SavedWeights::source(DType dtype) const {
  return [this, dtype](const Parameter& parameter, int64_t first,
                       absl::Span<float> out) -> absl::Status {
    const std::string& name = name_in_file_.at(parameter.name);
    ZERO_RETURN_IF_ERROR(files_.Read(name, first, out));
    for (size_t i = 0; i < out.size(); ++i) {
      if (Fits(out[i], dtype)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          files_.path(), ": tensor '", name, "': element ", first + static_cast<int64_t>(i), " is ",
          out[i], std::isfinite(out[i]) ? absl::StrCat(", too large for ", Name(dtype)) : ""));
    }
    return absl::OkStatus();
  };
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
