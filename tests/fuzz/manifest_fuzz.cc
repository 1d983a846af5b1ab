// ParseManifest, on any text. A text that only its own checksum is wrong of is tried again with the
// right one, so that changed manifests get through.
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "io/crc32c.h"
#include "tests/fuzz/fuzz_target.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero {
namespace {

constexpr char kOwnChecksum[] = "\"manifest_crc32c\"";

CheckpointParameter Parameter(const std::string& name, std::vector<int64_t> shape, DType dtype,
                              bool trainable) {
  CheckpointParameter parameter;
  parameter.name = name;
  parameter.unit = "block";
  parameter.shape = std::move(shape);
  parameter.dtype = dtype;
  parameter.trainable = trainable;
  if (trainable) {
    parameter.states = {
        {kMasterState, DType::kF32}, {kMoment1State, DType::kF32}, {kMoment2State, DType::kF32}};
  } else {
    parameter.states = {{kWeightState, dtype}};
  }
  return parameter;
}

CheckpointFile File(const std::string& name, int64_t bytes, std::vector<CheckpointPiece> pieces) {
  CheckpointFile file;
  file.name = name;
  file.bytes = bytes;
  file.checksums.assign(static_cast<size_t>((bytes + (1 << 20) - 1) >> 20), 0x8A9136AA);
  file.pieces = std::move(pieces);
  return file;
}

CheckpointManifest Small() {
  CheckpointManifest manifest;
  manifest.step = 100;
  manifest.counts.steps = 100;
  manifest.counts.applied = 98;
  manifest.counts.loss_scale = 0.1f;
  manifest.rounding_seed = UINT64_MAX;
  manifest.optimizer = "adamw";
  manifest.weight_rounding = "nearest_even";
  manifest.parameters = {Parameter("w", {2, 3}, DType::kBF16, true)};
  manifest.files = {File("rank-00000-of-00001.safetensors", 200, {{0, 0, 6}})};
  return manifest;
}

CheckpointManifest Large() {
  CheckpointManifest manifest = Small();
  manifest.world_size = 2;
  manifest.stage = 3;
  manifest.configuration = {"stage 3", "learning rate 0.001"};
  manifest.attributes = {{"data_position", "17"}, {"note", "a \"b\"\n"}};
  manifest.parameters.push_back(Parameter("frozen", {5}, DType::kF16, false));
  manifest.parameters.push_back(Parameter("none", {0, 4}, DType::kF32, true));
  manifest.parameters[0].aliases = {"tied"};
  manifest.files = {File("a", (1 << 20) + 1, {{0, 0, 4}, {1, 0, 5}}), File("b", 8, {{0, 4, 2}})};
  return manifest;
}

std::string WithRightChecksum(const std::string& text) {
  const size_t at = text.rfind(kOwnChecksum);
  if (at == std::string::npos) return text;
  return text.substr(0, at) + absl::StrFormat("%s: \"%08x\"\n}\n", kOwnChecksum,
                                              Crc32c(0, absl::MakeConstSpan(text.data(), at)));
}

void CheckManifest(const CheckpointManifest& manifest) {
  FuzzCheck(static_cast<int64_t>(manifest.files.size()) == manifest.world_size,
            "there is one file for each rank");
  std::vector<int64_t> covered(manifest.parameters.size(), 0);
  for (const CheckpointFile& file : manifest.files) {
    FuzzCheck(!file.name.empty() && file.name.find('/') == std::string::npos && file.name != "." &&
                  file.name != "..",
              "every file is a name in the folder");
    for (const CheckpointPiece& piece : file.pieces) {
      FuzzCheck(piece.parameter >= 0 &&
                    piece.parameter < static_cast<int64_t>(manifest.parameters.size()),
                "a piece is of a parameter");
      const int64_t elements = ElementCount(manifest.parameters[piece.parameter]);
      FuzzCheck(piece.first >= 0 && piece.count > 0 && piece.first <= elements &&
                    piece.count <= elements - piece.first,
                "a piece lies in its parameter");
      covered[piece.parameter] += piece.count;
    }
  }
  for (size_t i = 0; i < covered.size(); ++i) {
    FuzzCheck(covered[i] == ElementCount(manifest.parameters[i]), "every element is there once");
  }
  const std::string text = FormatManifest(manifest);
  const auto again = ParseManifest(text);
  FuzzCheck(again.ok(), "what is written can be read");
  FuzzCheck(FormatManifest(*again) == text, "it comes back as it was");
}

bool Takes(const std::string& text) {
  const auto manifest = ParseManifest(text);
  if (manifest.ok()) {
    ++fuzz_counts.accepted;
    CheckManifest(*manifest);
    return true;
  }
  ++fuzz_counts.refused;
  FuzzCheck(absl::IsDataLoss(manifest.status()) || absl::IsUnimplemented(manifest.status()),
            "a refusal is kDataLoss or kUnimplemented");
  FuzzCheck(!manifest.status().message().empty(), "a refusal says why");
  return false;
}

}  // namespace
}  // namespace zero

std::vector<std::string> FuzzSeeds() {
  return {zero::FormatManifest(zero::Small()), zero::FormatManifest(zero::Large())};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (zero::Takes(text)) return 0;
  const std::string mended = zero::WithRightChecksum(text);
  if (mended != text) zero::Takes(mended);
  return 0;
}
