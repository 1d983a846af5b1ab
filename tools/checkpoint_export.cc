#include "tools/checkpoint_export.h"

#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/llama/config.h"
#include "examples/llama/model_description.h"
#include "examples/support/text.h"
#include "io/folder.h"
#include "io/problems.h"
#include "tools/json_output.h"
#include "tools/output_folder.h"
#include "tools/progress_bar.h"
#include "zero/save/checkpoint_export.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::tools {
namespace {

constexpr const char* kConfig = "config.json";
// The attribute in which zero-train keeps the config.json of its model.
constexpr const char* kModelAttribute = "model";

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// What a config.json says of the exported weights: the dtype that all of them have, else fp32.
DType DTypeOf(const CheckpointManifest& manifest, std::optional<DType> wanted) {
  std::set<DType> dtypes;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    dtypes.insert(wanted.value_or(parameter.dtype));
  }
  return dtypes.size() == 1 ? *dtypes.begin() : DType::kF32;
}

// The states that weights are not made of: nothing reads them, and so nothing verifies them.
std::vector<std::string> Unread(const CheckpointManifest& manifest) {
  std::set<std::string> states;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    for (const auto& [state, dtype] : parameter.states) {
      if (state == kMoment1State || state == kMoment2State) states.insert(state);
    }
  }
  return {states.begin(), states.end()};
}

// Whether `config` describes the parameters of the checkpoint.
absl::Status CheckModel(const llama::LlamaConfig& config, const CheckpointManifest& manifest) {
  Problems problems;
  std::map<std::string, std::vector<int64_t>> described;
  for (const Unit& unit : llama::DescribeModel(config, DType::kF32).units) {
    for (const Parameter& parameter : unit.parameters) described[parameter.name] = parameter.shape;
  }
  for (const CheckpointParameter& parameter : manifest.parameters) {
    const auto found = described.find(parameter.name);
    if (found == described.end()) {
      problems.Add(absl::StrCat("it has no '", parameter.name, "'"));
      continue;
    }
    if (found->second != parameter.shape) {
      problems.Add(absl::StrCat("'", parameter.name, "' is ", ShapeText(found->second), " in it, ",
                                ShapeText(parameter.shape), " in the checkpoint"));
    }
    described.erase(found);
  }
  for (const auto& [name, shape] : described) {
    problems.Add(absl::StrCat("'", name, "' of it is not in the checkpoint"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("describes another model than the checkpoint's: ", problems.text()));
}

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

class Export : public Subcommand {
 public:
  void AddFlags(support::FlagTable& flags) override {
    flags.AddText("output", &output_, "FOLDER", "gets the weights and what goes with them");
    flags.AddChoice("dtype", &dtype_, {"own", "fp32", "bf16", "fp16"},
                    "of the tensors; own: as training has them; fp32: the masters");
    flags.AddSize("max_shard_size", &max_shard_bytes_, 1, "of a file of weights");
    flags.AddText("copy_from", &copy_from_, "FOLDER",
                  "whose config.json and tokenizer files are copied");
    flags.AddSwitch("json", &json_, "print one JSON object, with \"error\" if it fails");
  }

  absl::Status Check() override {
    if (output_.empty()) {
      return absl::InvalidArgumentError("--output is missing; it names the folder to be written");
    }
    return absl::OkStatus();
  }

  absl::Status Run(const std::string& path) override {
    ZERO_RETURN_IF_ERROR(RequireFolder(path, absl::StrCat("a checkpoint, with a ", kManifestName)));
    absl::StatusOr<CheckpointReader> opened = CheckpointReader::Open(path);
    if (absl::IsNotFound(opened.status())) {
      const absl::StatusOr<FoundCheckpoint> latest = LatestCheckpoint(path);
      return absl::NotFoundError(
          absl::StrCat(path, ": is no checkpoint (no ", kManifestName, ")",
                       latest.ok() ? absl::StrCat(", but its last one is ", latest->path) : ""));
    }
    ZERO_RETURN_IF_ERROR(opened.status());
    std::error_code error;
    for (const auto& [what, folder] : {std::pair("the checkpoint", &path),
                                       std::pair("--copy_from", &std::as_const(copy_from_))}) {
      if (!std::filesystem::equivalent(output_, *folder, error)) continue;
      return absl::InvalidArgumentError(absl::StrCat("--output is ", what, " itself, '", output_,
                                                     "': it must be another folder"));
    }
    ZERO_ASSIGN_OR_RETURN(const train::RunFolder folder, TakeOutput(output_));
    CheckpointReader& reader = *opened;
    SaveWeightsOptions options;
    options.max_shard_bytes = max_shard_bytes_;
    options.copy_from = copy_from_;
    if (dtype_ != "own") {
      ZERO_ASSIGN_OR_RETURN(options.dtype, ParseDType(dtype_));
    }
    ZERO_RETURN_IF_ERROR(AddConfig(reader.manifest(), options));
    ZERO_ASSIGN_OR_RETURN(const WeightsSaved saved, Write(reader, options));
    const std::vector<std::string> unread = Unread(reader.manifest());
    const absl::Status named = CheckCheckpointName(path, reader.manifest().step);
    if (json_) {
      const nlohmann::ordered_json report = {
          {"path", output_},          {"step", reader.manifest().step},
          {"tensors", saved.tensors}, {"bytes", saved.data_bytes},
          {"files", saved.files},     {"config", !config_from_.empty()},
          {"not_verified", unread}};
      std::cout << JsonText(report);
      return absl::OkStatus();
    }
    if (!note_.empty()) std::cout << "note: " << note_ << "\n";
    if (!named.ok()) std::cout << "note: " << named.message() << "\n";
    if (!unread.empty()) {
      std::cout << "note: verified is what was read, the weights; "
                << absl::StrJoin(unread, " and ") << (unread.size() == 1 ? " is" : " are")
                << " not, which zero-checkpoint inspect does\n";
    }
    std::cout << output_ << ": step " << reader.manifest().step << ", "
              << support::WithSeparators(saved.tensors) << " tensors, "
              << support::WithSeparators(saved.data_bytes) << " bytes in " << saved.files
              << (saved.files == 1 ? " file" : " files") << "; "
              << (config_from_.empty()
                      ? absl::StrCat("no ", kConfig, ", which --copy_from can give")
                      : absl::StrCat(kConfig, " of ", config_from_))
              << "\n";
    return absl::OkStatus();
  }

 private:
  // config.json with the dtype of the weights: that of --copy_from, else what the trainer has left
  // in the checkpoint. One of another kind of model than LLaMA is copied as it is.
  absl::Status AddConfig(const CheckpointManifest& manifest, SaveWeightsOptions& options) {
    std::error_code error;
    absl::StatusOr<llama::LlamaConfig> config = absl::NotFoundError("no config.json");
    if (std::filesystem::exists(std::filesystem::path(copy_from_) / kConfig, error) &&
        !copy_from_.empty()) {
      config_from_ = copy_from_;
      config = llama::ReadConfig(copy_from_);
    } else if (const auto found = manifest.attributes.find(kModelAttribute);
               found != manifest.attributes.end()) {
      config = llama::ParseConfig(found->second, kModelAttribute);
      if (config.ok()) config_from_ = "the checkpoint";
    }
    if (!config.ok()) {
      if (!config_from_.empty()) {
        note_ = absl::StrCat(kConfig, " is copied as it is: ", config.status().message());
      }
      return absl::OkStatus();
    }
    const absl::Status same = CheckModel(*config, manifest);
    if (!same.ok()) return Prefixed(absl::StrCat(kConfig, " of ", config_from_), same);
    ZERO_ASSIGN_OR_RETURN(std::string text,
                          llama::ToJson(*config, DTypeOf(manifest, options.dtype)));
    options.files.emplace_back(kConfig, std::move(text));
    return absl::OkStatus();
  }

  absl::StatusOr<WeightsSaved> Write(CheckpointReader& reader,
                                     const SaveWeightsOptions& options) const {
    ProgressBar bar("exporting");
    return ExportWeights(reader, output_, options,
                         [&](int64_t done, int64_t total) { bar.Show(done, total); });
  }

  std::string output_;
  std::string dtype_ = "own";
  int64_t max_shard_bytes_ = SaveWeightsOptions().max_shard_bytes;
  std::string copy_from_;
  bool json_ = false;
  std::string config_from_;  // where config.json comes from; empty: there is none
  std::string note_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeExport() { return std::make_unique<Export>(); }

}  // namespace zero::tools
