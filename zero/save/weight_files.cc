#include "zero/save/weight_files.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/weight_index.h"

namespace zero {
namespace {

constexpr size_t kMostOpen = 8;

}  // namespace

std::vector<std::string> WeightFilesPlan::names() const {
  std::vector<std::string> names;
  for (const Shard& shard : shards) names.push_back(shard.file);
  return names;
}

absl::StatusOr<WeightFilesPlan> PlanWeightFiles(const Model& model, std::optional<DType> dtype,
                                                int64_t max_shard_bytes) {
  WeightFilesPlan plan;
  std::vector<SafetensorsTensor> tensors;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      SafetensorsTensor tensor;
      tensor.name = parameter.name;
      tensor.dtype = SafetensorsName(dtype.value_or(parameter.dtype));
      tensor.shape = parameter.shape;
      tensors.push_back(std::move(tensor));
    }
  }
  plan.tensors = static_cast<int64_t>(tensors.size());
  ZERO_ASSIGN_OR_RETURN(plan.shards, PlanShards(std::move(tensors), max_shard_bytes));
  std::map<std::string, WeightFilesPlan::Place> places;
  for (size_t f = 0; f < plan.shards.size(); ++f) {
    // Sorted as the reference does: what is aligned in memory is aligned in the file.
    ZERO_ASSIGN_OR_RETURN(
        SafetensorsImage image,
        PlanSafetensors(plan.shards[f].tensors, {{"format", "pt"}}, SafetensorsOrder::kSorted));
    for (const SafetensorsTensor& tensor : image.tensors) {
      places[tensor.name] = {f, image.data_start + tensor.begin, 0};
    }
    plan.data_bytes += plan.shards[f].data_bytes;
    plan.images.push_back(std::move(image));
  }
  for (const Unit& unit : model.units) {
    plan.places.emplace_back();
    for (const Parameter& parameter : unit.parameters) {
      WeightFilesPlan::Place place = places[parameter.name];
      place.element_bytes = SizeOf(dtype.value_or(parameter.dtype));
      plan.places.back().push_back(place);
    }
  }
  if (plan.shards.size() > 1) plan.index = FormatWeightIndex(plan.shards);
  return plan;
}

std::string WeightFilesWriter::PathOf(size_t file) const {
  return absl::StrCat(folder_, "/", plan_->shards[file].file);
}

absl::Status WeightFilesWriter::Create() {
  for (size_t f = 0; f < plan_->images.size(); ++f) {
    ZERO_ASSIGN_OR_RETURN(const PosixFile file, PosixFile::CreateNew(PathOf(f)));
    ZERO_RETURN_IF_ERROR(file.WriteAt(0, plan_->images[f].start));
    ZERO_RETURN_IF_ERROR(file.Resize(plan_->images[f].bytes));
    ZERO_RETURN_IF_ERROR(file.Sync());
  }
  return absl::OkStatus();
}

absl::StatusOr<const PosixFile*> WeightFilesWriter::Open(size_t file) {
  for (const auto& [number, open] : open_) {
    if (number == file) return &open;
  }
  while (open_.size() >= kMostOpen) ZERO_RETURN_IF_ERROR(CloseFirst());
  ZERO_ASSIGN_OR_RETURN(PosixFile opened, PosixFile::OpenToWrite(PathOf(file)));
  open_.emplace_back(file, std::move(opened));
  return &open_.back().second;
}

absl::Status WeightFilesWriter::CloseFirst() {
  const absl::Status synced = open_.front().second.Sync();
  open_.pop_front();
  return synced;
}

absl::Status WeightFilesWriter::Write(int unit, int parameter, int64_t first,
                                      absl::Span<const char> bytes) {
  const WeightFilesPlan::Place& place =
      plan_->places[static_cast<size_t>(unit)][static_cast<size_t>(parameter)];
  ZERO_ASSIGN_OR_RETURN(const PosixFile* const file, Open(place.file));
  ZERO_RETURN_IF_ERROR(file->WriteAt(place.start + first * place.element_bytes, bytes));
  bytes_written_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status WeightFilesWriter::Finish() {
  while (!open_.empty()) ZERO_RETURN_IF_ERROR(CloseFirst());
  return absl::OkStatus();
}

absl::Status WeightFilesWriter::Verify() const {
  int64_t bytes = 0;
  for (size_t f = 0; f < plan_->images.size(); ++f) {
    ZERO_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(PathOf(f)));
    const std::vector<SafetensorsTensor>& wanted = plan_->images[f].tensors;
    const auto same = [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
      return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
             a.end - a.begin == b.end - b.begin;
    };
    if (file.tensors().size() != wanted.size()) {
      return absl::DataLossError(absl::StrCat(PathOf(f), ": holds ", file.tensors().size(),
                                              " tensors of ", wanted.size(), " written"));
    }
    for (const SafetensorsTensor& tensor : wanted) {
      const auto found = file.Find(tensor.name);
      if (!found.ok() || !same(**found, tensor)) {
        return absl::DataLossError(
            absl::StrCat(PathOf(f), ": tensor '", tensor.name, "' is not as it was written"));
      }
      bytes += tensor.bytes();
    }
  }
  if (bytes == plan_->data_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(folder_, ": the files hold ", bytes,
                                          " bytes of tensors, the model has ", plan_->data_bytes));
}

}  // namespace zero
