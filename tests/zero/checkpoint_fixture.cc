#include "tests/zero/checkpoint_fixture.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "device/status.h"
#include "io/checksummed_file.h"
#include "io/folder.h"
#include "io/safetensors_image.h"
#include "zero/stored_as.h"

namespace zero::test {

CheckpointManifest SmallCheckpoint(DType dtype) {
  CheckpointManifest manifest;
  manifest.step = 100;
  manifest.counts = {/*steps=*/100,    /*applied=*/97,          /*last_applied_step=*/99,
                     /*skipped=*/3,    /*consecutive_skips=*/1, /*loss_scale=*/65536,
                     /*hysteresis=*/1, /*iterations=*/100,      /*last_overflow=*/99,
                     /*clean=*/0};
  manifest.rounding_seed = 0xFEDCBA9876543210u;
  manifest.stage = 3;
  manifest.optimizer = "adamw";
  manifest.weight_rounding = "nearest_even";
  manifest.configuration = {"stage: 3", "learning_rate: 0.001"};
  const std::map<std::string, DType> trained = {
      {kMasterState, DType::kF32}, {kMoment1State, DType::kF32}, {kMoment2State, DType::kF32}};
  manifest.parameters = {
      {"embed.weight", "embed", {6, 5}, dtype, true, {"head.weight"}, trained},
      {"layer.bias", "layer", {7}, dtype, true, {}, trained},
      {"layer.frozen", "layer", {3, 4}, dtype, false, {}, {{kWeightState, dtype}}},
      {"layer.empty", "layer", {0, 4}, dtype, true, {}, trained},
      {"layer.scale", "layer", {}, DType::kF32, true, {}, trained},
  };
  manifest.attributes = {{"data.position", "1234"}, {"note", "two\nlines, \"quotes\" and ü"}};
  return manifest;
}

void CutIntoFiles(CheckpointManifest& manifest, int ranks) {
  manifest.world_size = ranks;
  manifest.files.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    CheckpointFile file;
    file.name = absl::StrFormat("rank-%05d-of-%05d.safetensors", rank, ranks);
    file.bytes = 8;
    file.checksums = {0};
    for (size_t p = 0; p < manifest.parameters.size(); ++p) {
      const int64_t elements = ElementCount(manifest.parameters[p]);
      const int64_t slice = (elements + ranks - 1) / ranks;
      const int64_t first = std::min(elements, rank * slice);
      const int64_t count = std::min(slice, elements - first);
      if (count > 0) file.pieces.push_back({static_cast<int64_t>(p), first, count});
    }
    manifest.files.push_back(file);
  }
}

float ExactValue(const std::string& state, int64_t parameter, int64_t element) {
  // Eight bits are exact in bf16.
  const float sign = state == kMoment1State ? -1.0f : 1.0f;
  const float scale = state == kMoment2State ? 0.0625f : 0.5f;
  return sign * scale * static_cast<float>((parameter * 31 + element) % 251 + 1);
}

absl::Status WriteCheckpoint(const std::string& folder, CheckpointManifest& manifest,
                             const CheckpointValue& value) {
  ZERO_RETURN_IF_ERROR(MakeFolders(folder));
  for (CheckpointFile& file : manifest.files) {
    std::vector<SafetensorsTensor> tensors;
    std::string data;
    for (const CheckpointPiece& piece : file.pieces) {
      const CheckpointParameter& parameter = manifest.parameters[piece.parameter];
      for (const auto& [state, dtype] : parameter.states) {
        SafetensorsTensor tensor;
        tensor.name = CheckpointTensorName(state, parameter);
        tensor.dtype = SafetensorsName(dtype);
        tensor.shape = {piece.count};
        tensors.push_back(tensor);
        std::vector<float> values;
        for (int64_t i = 0; i < piece.count; ++i) {
          values.push_back(value(state, piece.parameter, piece.first + i));
        }
        const StoredAs stored = StoredAsOf(dtype);
        std::vector<char> bytes(values.size() * static_cast<size_t>(BytesOf(stored)));
        Encode(absl::MakeSpan(values), stored, bytes.data());
        data.append(bytes.begin(), bytes.end());
      }
    }
    ZERO_ASSIGN_OR_RETURN(const SafetensorsImage image,
                          PlanSafetensors(tensors, {{"format", "zero checkpoint 1"}}));
    ZERO_ASSIGN_OR_RETURN(ChecksummedWriter writer,
                          ChecksummedWriter::Create(folder + "/" + file.name));
    ZERO_RETURN_IF_ERROR(writer.Append(image.start));
    ZERO_RETURN_IF_ERROR(writer.Append(data));
    file.bytes = writer.bytes();
    ZERO_ASSIGN_OR_RETURN(file.checksums, writer.Finish());
  }
  return WriteWhole(folder + "/" + kManifestName, FormatManifest(manifest));
}

}  // namespace zero::test
