#include "tools/checkpoint_import.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/config.h"
#include "examples/llama/model_description.h"
#include "examples/support/text.h"
#include "examples/train/load.h"
#include "io/folder.h"
#include "tools/json_output.h"
#include "tools/kind_of.h"
#include "tools/output_folder.h"
#include "tools/progress_bar.h"
#include "zero/save/checkpoint_import.h"

namespace zero::tools {
namespace {

class Import : public Subcommand {
 public:
  void AddFlags(support::FlagTable& flags) override {
    flags.AddText("output", &output_, "FOLDER", "gets the checkpoint, as step-00000000");
    flags.AddChoice("dtype", &dtype_, {"files", "fp32", "bf16", "fp16"},
                    "of the weights of the run that loads it; files: as the tensors are");
    flags.AddChoice("optimizer", &optimizer_, {"adamw", "adam", "sgd", "lion"},
                    "whose moments, of zeros, it gets");
    flags.AddNumber("momentum", &momentum_, 0, 0.999999, "of sgd; 0: it has no moments");
    flags.AddChoice("master", &master_, {"fp32", "split", "none"},
                    "kept of 16-bit weights: fp32, the low 16 bits of fp32, nothing");
    flags.AddNumber("loss_scale", &loss_scale_, 0, 0x1p127,
                    "that training begins with; 0: 65536 in fp16, else 1");
    flags.AddSwitch("json", &json_, "print one JSON object, with \"error\" if it fails");
  }

  absl::Status Check() override {
    if (output_.empty()) {
      return absl::InvalidArgumentError("--output is missing; it names a folder of checkpoints");
    }
    if (momentum_ > 0 && optimizer_ != "sgd") {
      return absl::InvalidArgumentError(
          absl::StrCat("--momentum is for --optimizer sgd, not ", optimizer_));
    }
    return absl::OkStatus();
  }

  absl::Status Run(const std::string& path) override {
    ZERO_RETURN_IF_ERROR(RequireFolder(path, "a folder with config.json and weights"));
    std::error_code error;
    if (std::filesystem::equivalent(output_, path, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output is FOLDER itself, '", output_, "': it must be another folder"));
    }
    ZERO_ASSIGN_OR_RETURN(const llama::LlamaConfig llama, llama::ReadConfig(path));
    ZERO_ASSIGN_OR_RETURN(const train::SavedWeights weights,
                          train::SavedWeights::Open(path, llama));
    DType dtype = weights.dtype();
    if (dtype_ != "files") {
      ZERO_ASSIGN_OR_RETURN(dtype, ParseDType(dtype_));
    }
    if (master_ != "fp32" && dtype != DType::kBF16) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--master is '", master_, "'; with weights in ", Name(dtype), " it must be fp32"));
    }
    const Model model = llama::DescribeModel(llama, dtype);
    ZERO_ASSIGN_OR_RETURN(const std::string made, Make(ConfigOf(dtype), model, weights));
    if (json_) {
      const nlohmann::ordered_json report = {{"path", made},
                                             {"step", 0},
                                             {"dtype", Name(dtype)},
                                             {"elements", llama::ParameterCount(llama)}};
      std::cout << JsonText(report);
      return absl::OkStatus();
    }
    if (!weights.Ignored().empty()) std::cout << "left out: " << weights.Ignored() << "\n";
    std::cout << made << ": " << support::WithSeparators(llama::ParameterCount(llama))
              << " parameters in " << Name(dtype) << " with the states of " << optimizer_ << "\n";
    return absl::OkStatus();
  }

 private:
  Config ConfigOf(DType dtype) const {
    Config config;
    config.optimizer = KindOf<OptimizerKind>(optimizer_);
    config.momentum = momentum_;
    config.master = KindOf<MasterKind>(master_);
    if (config.master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
    config.groups.assign(2, {});  // those that DescribeModel names
    config.loss_scale.scale = loss_scale_;
    if (loss_scale_ == 0) config.loss_scale.scale = dtype == DType::kF16 ? 65536 : 1;
    return config;
  }

  absl::StatusOr<std::string> Make(const Config& config, const Model& model,
                                   const train::SavedWeights& weights) const {
    ProgressBar bar("importing");
    const auto source = [&](const Parameter& parameter, int64_t first, absl::Span<float> out) {
      return weights.Read(parameter, first, out);
    };
    // A run that works in the folder has the steps in it for its own.
    ZERO_ASSIGN_OR_RETURN(const train::RunFolder folder, TakeOutput(output_));
    const absl::StatusOr<std::string> made =
        ImportCheckpoint(config, model, source, output_,
                         [&](int64_t done, int64_t total) { bar.Show(done, total); });
    if (!absl::IsInvalidArgument(made.status())) return made;
    return absl::InvalidArgumentError(
        absl::StrCat(weights.files().path(), ": ", made.status().message()));
  }

  std::string output_;
  std::string dtype_ = "files";
  std::string optimizer_ = Name(Config().optimizer);
  double momentum_ = 0;
  std::string master_ = Name(Config().master);
  double loss_scale_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> MakeImport() { return std::make_unique<Import>(); }

}  // namespace zero::tools
