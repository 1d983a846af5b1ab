#include "examples/train/load.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/llama/model_description.h"

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

absl::Status Wrong(const SafetensorsFile& file, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", why));
}

// What a parameter is called in the file: its name, or where that is missing an alias.
absl::StatusOr<const SafetensorsTensor*> FindParameter(const SafetensorsFile& file,
                                                       const Parameter& parameter) {
  std::vector<std::string> names = {parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  const SafetensorsTensor* found = nullptr;
  for (const std::string& name : names) {
    const absl::StatusOr<const SafetensorsTensor*> tensor = file.Find(name);
    if (!tensor.ok()) continue;
    if (found != nullptr) {
      return Wrong(file, absl::StrCat("holds '", found->name, "' and '", name,
                                      "', which are one matrix where tie_word_embeddings is true"));
    }
    found = *tensor;
  }
  if (found != nullptr) return found;
  const bool head = parameter.name == "lm_head.weight";
  return Wrong(file, absl::StrCat("tensor '", parameter.name, "' of shape ",
                                  ShapeText(parameter.shape), " is missing",
                                  head ? "; config.json says tie_word_embeddings false" : ""));
}

absl::Status CheckTensors(const SafetensorsFile& file, const Model& model) {
  std::set<std::string> known;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      ZERO_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, FindParameter(file, parameter));
      known.insert(tensor->name);
      if (tensor->shape != parameter.shape) {
        return Wrong(
            file, absl::StrCat("tensor '", tensor->name, "' has shape ", ShapeText(tensor->shape),
                               "; config.json (", KeysOf(parameter.name), ") makes it ",
                               ShapeText(parameter.shape)));
      }
      if (tensor->dtype != "F32" && tensor->dtype != "BF16" && tensor->dtype != "F16") {
        return Wrong(file, absl::StrCat("tensor '", tensor->name, "' is ", tensor->dtype,
                                        "; F32, BF16 and F16 can be read"));
      }
    }
  }
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (known.count(tensor.name) != 0 || absl::EndsWith(tensor.name, "rotary_emb.inv_freq")) {
      continue;
    }
    return Wrong(file, absl::StrCat("tensor '", tensor.name, "' of shape ", ShapeText(tensor.shape),
                                    " is none of the model that config.json describes"));
  }
  return absl::OkStatus();
}

DType DTypeOf(const SafetensorsFile& file) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.dtype != "BF16") return DType::kF32;
  }
  return DType::kBF16;
}

}  // namespace

absl::StatusOr<SavedModel> OpenModelFolder(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", folder, "' is no folder; it must hold config.json and model.safetensors"));
  }
  ZERO_ASSIGN_OR_RETURN(llama::LlamaConfig config, llama::ReadConfig(folder));
  ZERO_ASSIGN_OR_RETURN(SafetensorsFile weights,
                        SafetensorsFile::Open(folder + "/model.safetensors"));
  const DType dtype = DTypeOf(weights);
  Model model = llama::DescribeModel(config, dtype);
  ZERO_RETURN_IF_ERROR(CheckTensors(weights, model));
  for (Unit& unit : model.units) {
    for (Parameter& parameter : unit.parameters) parameter.trainable = false;
  }
  return SavedModel{std::move(config), std::move(weights), dtype, std::move(model)};
}

Source SourceOf(const SavedModel& saved) {
  return [&saved](const Parameter& parameter, int64_t first,
                  absl::Span<float> out) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, FindParameter(saved.weights, parameter));
    return saved.weights.Read(tensor->name, first, out);
  };
}

}  // namespace zero::train
