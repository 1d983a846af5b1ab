#include "tests/zero/checkpoint_fixture.h"

#include <algorithm>

#include "absl/strings/str_format.h"

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

}  // namespace zero::test
