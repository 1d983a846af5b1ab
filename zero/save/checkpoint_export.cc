#include "zero/save/checkpoint_export.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/config.h"
#include "zero/model.h"
#include "zero/save/model_files.h"
#include "zero/save/staging_folder.h"
#include "zero/save/weight_files.h"
#include "zero/stored_as.h"

namespace zero {
namespace {

constexpr int64_t kPieceElements = 1 << 18;

// The parameters of a checkpoint, in their order. What units they were in, files do not say.
Model ModelOf(const CheckpointManifest& manifest) {
  Unit unit;
  for (const CheckpointParameter& described : manifest.parameters) {
    Parameter parameter;
    parameter.name = described.name;
    parameter.shape = described.shape;
    parameter.dtype = described.dtype;
    unit.parameters.push_back(std::move(parameter));
  }
  Model model;
  model.units.push_back(std::move(unit));
  return model;
}

class Exporter {
 public:
  Exporter(CheckpointReader& checkpoint, const SaveWeightsOptions& options,
           const WeightFilesPlan& plan, WeightFilesWriter& writer,
           const std::function<void(int64_t, int64_t)>& progress)
      : checkpoint_(checkpoint),
        options_(options),
        plan_(plan),
        writer_(writer),
        progress_(progress) {}

  absl::Status WriteAll() {
    for (size_t p = 0; p < checkpoint_.manifest().parameters.size(); ++p) {
      ZERO_RETURN_IF_ERROR(Write(static_cast<int>(p)));
    }
    ZERO_RETURN_IF_ERROR(writer_.Finish());
    if (writer_.bytes_written() == plan_.data_bytes) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(writer_.bytes_written(),
                                            " bytes of tensors were written, the model has ",
                                            plan_.data_bytes));
  }

 private:
  absl::Status Write(int parameter) {
    const CheckpointParameter& described = checkpoint_.manifest().parameters[parameter];
    const char* const state = described.trainable ? kMasterState : kWeightState;
    const DType dtype = options_.dtype.value_or(described.dtype);
    const StoredAs stored = StoredOf(described, dtype);
    const int64_t count = ElementCount(described);
    for (int64_t first = 0; first < count; first += kPieceElements) {
      const int64_t n = std::min(kPieceElements, count - first);
      values_.resize(static_cast<size_t>(n));
      bytes_.resize(static_cast<size_t>(n * BytesOf(stored)));
      ZERO_RETURN_IF_ERROR(checkpoint_.Read(parameter, state, first, absl::MakeSpan(values_)));
      Encode(values_, stored, bytes_.data());
      if (dtype != described.dtype) ZERO_RETURN_IF_ERROR(CheckRange(described, first, stored));
      ZERO_RETURN_IF_ERROR(writer_.Write(0, parameter, first, bytes_));
      if (progress_) progress_(writer_.bytes_written(), plan_.data_bytes);
    }
    return absl::OkStatus();
  }

  // A weight in its own dtype is what training made of the master; in another one, it is rounded
  // to nearest, ties to even.
  StoredAs StoredOf(const CheckpointParameter& described, DType dtype) const {
    const bool away = checkpoint_.manifest().weight_rounding == Name(WeightRounding::kNearestAway);
    return dtype == DType::kBF16 && described.dtype == DType::kBF16 && away ? StoredAs::kBF16Away
                                                                            : StoredAsOf(dtype);
  }

  // What is finite must stay so.
  absl::Status CheckRange(const CheckpointParameter& described, int64_t first, StoredAs stored) {
    rounded_.resize(values_.size());
    Decode(bytes_.data(), stored, absl::MakeSpan(rounded_));
    for (size_t i = 0; i < values_.size(); ++i) {
      if (std::isfinite(rounded_[i]) || !std::isfinite(values_[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter '", described.name, "': element ", first + static_cast<int64_t>(i), " is ",
          values_[i], ", too large for ", Name(*options_.dtype)));
    }
    return absl::OkStatus();
  }

  CheckpointReader& checkpoint_;
  const SaveWeightsOptions& options_;
  const WeightFilesPlan& plan_;
  WeightFilesWriter& writer_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<float> values_;
  std::vector<float> rounded_;
  std::vector<char> bytes_;
};

}  // namespace

absl::StatusOr<WeightsSaved> ExportWeights(
    CheckpointReader& checkpoint, const std::string& folder, const SaveWeightsOptions& options,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  ZERO_RETURN_IF_ERROR(CheckSaveOptions(folder, options));
  const Model model = ModelOf(checkpoint.manifest());
  ZERO_ASSIGN_OR_RETURN(const WeightFilesPlan plan,
                        PlanWeightFiles(model, options.dtype, options.max_shard_bytes));
  ZERO_ASSIGN_OR_RETURN(StagingFolder staging, StagingFolder::CreateAlone(folder));
  WeightFilesWriter writer(&plan, staging.path());
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> others,
                        StageFiles(options, plan, staging, writer));
  ZERO_RETURN_IF_ERROR(Exporter(checkpoint, options, plan, writer, progress).WriteAll());
  ZERO_RETURN_IF_ERROR(CheckStaged(staging, writer));
  ZERO_RETURN_IF_ERROR(PublishStaged(staging, plan, others));
  return WeightsSaved{plan.tensors, plan.data_bytes, static_cast<int>(plan.shards.size()),
                      /*shared=*/true};
}

}  // namespace zero
