// The state that a checkpoint holds, without a process group and in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero {

// Move-only; for one thread. Keeps at most kOpenFiles files open, each with a block of memory.
class CheckpointReader {
 public:
  static constexpr size_t kOpenFiles = 16;

  // Reads the manifest and looks at the size of every file. kNotFound: no manifest. kDataLoss: a
  // file is missing or has another size. Errors name the path.
  static absl::StatusOr<CheckpointReader> Open(const std::string& folder);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::string& folder() const { return folder_; }
  const CheckpointManifest& manifest() const { return *manifest_; }

  // Elements [first, first + out.size()) of a state of a parameter (its place in the manifest) as
  // fp32, exactly. Opens the files that hold them, each of which must contain the tensors that the
  // manifest says, and verifies every block that it uses. kNotFound: the parameter has no such
  // state. kOutOfRange. kDataLoss names file and byte.
  absl::Status Read(int64_t parameter, const std::string& state, int64_t first,
                    absl::Span<float> out);

  using Progress = std::function<void(int64_t done, int64_t total)>;
  // The header and every block of every file. `progress`, unless it is null, is told the bytes so
  // far and those of all files.
  absl::Status Verify(const Progress& progress);
  // The same, and how many elements of each tensor are inf or NaN, by its name
  // ("master/lm_head.weight"); those where all are finite are left out.
  absl::StatusOr<std::map<std::string, int64_t>> VerifyFinite(const Progress& progress);

 private:
  struct OpenFile;
  // A run of a parameter's elements, and the file that holds it.
  struct Place {
    int64_t first = 0;
    int64_t count = 0;
    size_t file = 0;
  };
  CheckpointReader(std::string folder, CheckpointManifest manifest);
  absl::StatusOr<std::unique_ptr<OpenFile>> OpenAt(size_t file) const;
  absl::StatusOr<OpenFile*> FileAt(size_t file);
  int64_t BytesOfAll() const;
  absl::Status ReadPlace(const Place& place, int64_t parameter, const std::string& state,
                         int64_t first, absl::Span<float> out);

  std::string folder_;
  std::unique_ptr<const CheckpointManifest> manifest_;  // stays where it is
  std::vector<std::vector<Place>> places_;              // by parameter, in their order
  std::map<size_t, std::unique_ptr<OpenFile>> open_;    // by place in the manifest
  int64_t uses_ = 0;
  std::vector<uint16_t> narrow_;
};

}  // namespace zero
