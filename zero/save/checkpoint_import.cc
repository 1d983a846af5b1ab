#include "zero/save/checkpoint_import.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/checksummed_file.h"
#include "io/folder.h"
#include "io/safetensors_image.h"
#include "zero/plan.h"
#include "zero/save/checkpoint_description.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_manifest.h"
#include "zero/stored_as.h"

namespace zero {
namespace {

constexpr int64_t kPieceElements = 1 << 18;

// A tensor of the file: one state of a whole parameter.
struct StateTensor {
  const Parameter* parameter = nullptr;
  std::string state;
  DType dtype = DType::kF32;
  SafetensorsTensor tensor;
};

// In the order in which states are loaded: masters and frozen weights, then the moments.
std::vector<StateTensor> TensorsOf(const Model& model, const CheckpointManifest& manifest) {
  std::vector<StateTensor> tensors;
  const auto add = [&](const std::string& state) {
    size_t p = 0;
    for (const Unit& unit : model.units) {
      for (const Parameter& parameter : unit.parameters) {
        const CheckpointParameter& described = manifest.parameters[p++];
        const std::string name =
            state == kMasterState && !parameter.trainable ? kWeightState : state;
        const auto dtype = described.states.find(name);
        const int64_t count = ElementCount(parameter);
        if (count == 0 || dtype == described.states.end()) continue;
        SafetensorsTensor tensor;
        tensor.name = CheckpointTensorName(name, described);
        tensor.dtype = SafetensorsName(dtype->second);
        tensor.shape = {count};
        tensors.push_back({&parameter, name, dtype->second, std::move(tensor)});
      }
    }
  };
  for (const char* state : {kMasterState, kMoment1State, kMoment2State}) add(state);
  return tensors;
}

class Importer {
 public:
  Importer(const Source& source, const std::function<void(int64_t, int64_t)>& progress)
      : source_(source), progress_(progress) {}

  // The file of the only rank; fills its place in the manifest.
  absl::Status WriteFile(const std::string& path, const std::vector<StateTensor>& tensors,
                         CheckpointFile& file) {
    std::vector<SafetensorsTensor> described;
    for (const StateTensor& tensor : tensors) described.push_back(tensor.tensor);
    ZERO_ASSIGN_OR_RETURN(const SafetensorsImage image,
                          PlanSafetensors(std::move(described), {{"format", "zero checkpoint 1"}}));
    total_ = image.bytes - image.data_start;
    ZERO_ASSIGN_OR_RETURN(ChecksummedWriter writer, ChecksummedWriter::Create(path));
    ZERO_RETURN_IF_ERROR(writer.Append(image.start));
    for (const StateTensor& tensor : tensors) ZERO_RETURN_IF_ERROR(WriteTensor(tensor, writer));
    file.bytes = writer.bytes();
    ZERO_ASSIGN_OR_RETURN(file.checksums, writer.Finish());
    return absl::OkStatus();
  }

 private:
  absl::Status WriteTensor(const StateTensor& tensor, ChecksummedWriter& writer) {
    const StoredAs stored = StoredAsOf(tensor.dtype);
    const bool moment = tensor.state == kMoment1State || tensor.state == kMoment2State;
    const int64_t count = ElementCount(*tensor.parameter);
    for (int64_t first = 0; first < count; first += kPieceElements) {
      const int64_t n = std::min(kPieceElements, count - first);
      values_.assign(static_cast<size_t>(n), 0.0f);
      bytes_.resize(static_cast<size_t>(n * BytesOf(stored)));
      if (!moment) {
        ZERO_RETURN_IF_ERROR(source_(*tensor.parameter, first, absl::MakeSpan(values_)));
        ZERO_RETURN_IF_ERROR(CheckFinite(*tensor.parameter, first));
      }
      Encode(values_, stored, bytes_.data());
      ZERO_RETURN_IF_ERROR(writer.Append(bytes_));
      done_ += static_cast<int64_t>(bytes_.size());
      if (progress_) progress_(done_, total_);
    }
    return absl::OkStatus();
  }

  absl::Status CheckFinite(const Parameter& parameter, int64_t first) const {
    const auto wrong = std::find_if(values_.begin(), values_.end(),
                                    [](float value) { return !std::isfinite(value); });
    if (wrong == values_.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name, "': element ",
                                                   first + (wrong - values_.begin()), " is ",
                                                   *wrong));
  }

  const Source& source_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t done_ = 0;
  int64_t total_ = 0;
  std::vector<float> values_;
  std::vector<char> bytes_;
};

// Goes, with what is in it, unless it has got another name.
class TemporaryCheckpoint {
 public:
  explicit TemporaryCheckpoint(std::string path) : path_(std::move(path)) {}
  TemporaryCheckpoint(const TemporaryCheckpoint&) = delete;
  TemporaryCheckpoint& operator=(const TemporaryCheckpoint&) = delete;
  ~TemporaryCheckpoint() { (void)RemoveTree(path_); }

  std::string File(const std::string& name) const { return absl::StrCat(path_, "/", name); }

 private:
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::string> ImportCheckpoint(
    const Config& config, const Model& model, const Source& source, const std::string& folder,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  ZERO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(config, model, 1));
  CheckpointManifest manifest = DescribeCheckpoint(plan, model);
  manifest.configuration.clear();
  manifest.counts.loss_scale = static_cast<float>(config.loss_scale.scale);
  manifest.counts.hysteresis = config.loss_scale.hysteresis;

  const std::string path = absl::StrCat(folder, "/", CheckpointName(manifest.step));
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": exists; it must be removed first"));
  }
  const std::string name = TemporaryCheckpointName(manifest.step);
  const TemporaryCheckpoint temporary(absl::StrCat(folder, "/", name));
  ZERO_RETURN_IF_ERROR(MakeFolders(temporary.File("")));
  CheckpointFile& file = manifest.files[0];
  ZERO_RETURN_IF_ERROR(Importer(source, progress)
                           .WriteFile(temporary.File(file.name), TensorsOf(model, manifest), file));
  const std::string text = FormatManifest(manifest);
  ZERO_RETURN_IF_ERROR(ParseManifest(text).status());
  ZERO_RETURN_IF_ERROR(WriteWhole(temporary.File(kManifestName), text));
  ZERO_RETURN_IF_ERROR(PublishCheckpoint(folder, name, manifest.step));
  return path;
}

}  // namespace zero
