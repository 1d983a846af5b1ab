// What a checkpoint consists of: the file manifest.json of its folder, written last.
//
// A checkpoint is a folder with one safetensors file for each rank that wrote it and this manifest.
// The tensors of the files are named "<state>/<parameter>" and have the shape [count]: runs of
// elements of a parameter in row-major order, whatever the stage and the layout were.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/dtype.h"

namespace zero {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int kCheckpointFormat = 1;

// The states of a parameter. A trainable one has a master, in fp32, or in its own dtype where it
// has no other master, and what moments its optimizer keeps, in fp32. A frozen one has a weight, in
// its own dtype, and nothing else.
inline constexpr const char* kMasterState = "master";
inline constexpr const char* kMoment1State = "moment1";
inline constexpr const char* kMoment2State = "moment2";
inline constexpr const char* kWeightState = "weight";

struct CheckpointParameter {
  std::string name;
  std::string unit;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  bool trainable = true;
  std::vector<std::string> aliases;
  std::map<std::string, DType> states;  // name -> dtype in the files
};

// Elements [first, first + count) of a parameter, by its place in the manifest. Never empty.
struct CheckpointPiece {
  int64_t parameter = 0;
  int64_t first = 0;
  int64_t count = 0;
};

struct CheckpointFile {
  std::string name;  // in the checkpoint's folder
  int64_t bytes = 0;
  std::vector<uint32_t> checksums;  // CRC32C of each kChecksumBlock bytes; the last may be short
  std::vector<CheckpointPiece> pieces;  // at most one of each parameter
};

// StepState of kernels/decide.h; `steps` counts all calls of Step.
struct CheckpointCounts {
  int64_t steps = 0;
  int64_t applied = 0;
  int64_t last_applied_step = 0;
  int64_t skipped = 0;
  int64_t consecutive_skips = 0;
  float loss_scale = 1;
  int64_t hysteresis = 2;
  int64_t iterations = 0;
  int64_t last_overflow = -1;
  int64_t clean = 0;
};

using Attributes = std::map<std::string, std::string>;

struct CheckpointManifest {
  int64_t step = 0;
  CheckpointCounts counts;
  uint64_t rounding_seed = 0;
  int world_size = 1;
  int stage = 0;
  std::string optimizer;                   // Name of an OptimizerKind
  std::string weight_rounding;             // Name of a WeightRounding
  std::vector<std::string> configuration;  // AgreementLines of the configuration
  std::vector<CheckpointParameter> parameters;
  std::vector<CheckpointFile> files;  // one for each rank, in their order
  Attributes attributes;
};

// "<state>/<parameter>": the name in the files.
std::string CheckpointTensorName(const std::string& state, const CheckpointParameter& parameter);
// Elements of a parameter; -1 if a dimension is negative or the product is above 2^56.
int64_t ElementCount(const CheckpointParameter& parameter);

// The text of manifest.json. What ParseManifest refuses can be written too: a writer that is given
// names and attributes from elsewhere parses what it is about to write.
std::string FormatManifest(const CheckpointManifest& manifest);

// The inverse of FormatManifest, strict: kDataLoss names the key that is missing, unknown or wrong
// and where it is, kUnimplemented a newer format. The pieces of all files cover every parameter
// exactly once, and the files' names lead to no other folder. The last key is the CRC32C of the
// text before it, looked at when all else is right.
absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text);

// The manifest of a checkpoint. kNotFound: there is none. Errors name the path.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder);

}  // namespace zero
