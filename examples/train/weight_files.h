// The weights of a Hugging Face folder, in one file or in several.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/safetensors.h"

namespace zero::train {

// The open files of one model, as one list of tensors.
class WeightFiles {
 public:
  // Whether `folder` holds weights: model.safetensors, or model.safetensors.index.json.
  // kInvalidArgument: both of them, or none but a file of weights that cannot be read.
  static absl::StatusOr<bool> In(const std::string& folder);

  // Opens model.safetensors of `folder`, or each file that the index names. kInvalidArgument: see
  // In; no weights; an index that does not say, tensor by tensor, what is in its files.
  static absl::StatusOr<WeightFiles> Open(const std::string& folder);

  // model.safetensors or the index.
  const std::string& path() const { return path_; }
  // Of all files; a name comes once.
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }

  // As SafetensorsFile::Read.
  absl::Status Read(const std::string& name, int64_t first, absl::Span<float> out) const;

 private:
  explicit WeightFiles(std::string path) : path_(std::move(path)) {}
  absl::Status Add(const SafetensorsFile& file);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace zero::train
