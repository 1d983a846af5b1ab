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
#include "io/weight_index.h"

namespace zero {

// The open files of one model, as one list of tensors. Copies share the files. Reading is safe from
// several threads.
class WeightFolder {
 public:
  // Whether `folder` holds weights: model.safetensors, or model.safetensors.index.json.
  // kInvalidArgument: none of them, but a file of weights that cannot be read.
  static absl::StatusOr<bool> In(const std::string& folder);

  // Opens the files that the index names, or model.safetensors where there is no index. Each tensor
  // of the index has to be in its file and in no other of them. kInvalidArgument lists what is not;
  // names an index that cannot be used, and files of it that lie outside of the folder (the blobs
  // of a Hugging Face cache apart). kNotFound: no weights, or files of the index that are missing.
  // Otherwise as SafetensorsFile::Open.
  static absl::StatusOr<WeightFolder> Open(const std::string& folder);

  // The index or model.safetensors.
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  // Of all files, those of the index if there is one.
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  // What was passed over, and what does not fit together but changes no tensor; a line each.
  const std::vector<std::string>& notes() const { return notes_; }

  // The file that holds a tensor. kNotFound.
  absl::StatusOr<const SafetensorsFile*> FileOf(const std::string& name) const;
  // As SafetensorsFile::Read and ReadBytes.
  absl::Status Read(const std::string& name, int64_t first, absl::Span<float> out) const;
  absl::Status ReadBytes(const std::string& name, int64_t first, absl::Span<char> out) const;

 private:
  explicit WeightFolder(std::string path) : path_(std::move(path)) {}
  absl::Status OpenIndexed(const std::string& folder, const WeightIndex& index);
  absl::Status AddIndexed(const std::vector<std::string>& names, const WeightIndex& index);
  void NotePassedOver(const std::string& folder, const std::vector<std::string>& names);
  void Add(const SafetensorsTensor& tensor, size_t file);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::map<std::string, size_t> file_of_;
  std::vector<std::string> notes_;
};

}  // namespace zero
