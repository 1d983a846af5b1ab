// The files of weights while they are written: what is where, and the writing of ranges.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/posix_file.h"
#include "io/safetensors_image.h"
#include "io/weight_shards.h"
#include "zero/model.h"

namespace zero {

// What SaveWeights makes of a model. The same on every rank.
struct WeightFilesPlan {
  struct Place {
    size_t file = 0;
    int64_t start = 0;  // first byte of the parameter in the file
    int64_t element_bytes = 0;
  };

  std::vector<Shard> shards;
  std::vector<SafetensorsImage> images;    // by shard
  std::vector<std::vector<Place>> places;  // by unit and parameter
  int64_t tensors = 0;
  int64_t data_bytes = 0;
  // Of the index; empty where there is one file.
  std::string index;

  std::vector<std::string> names() const;
};

// kInvalidArgument: see PlanShards and PlanSafetensors.
absl::StatusOr<WeightFilesPlan> PlanWeightFiles(const Model& model, std::optional<DType> dtype,
                                                int64_t max_shard_bytes);

// Writes ranges of the files of a plan in one folder. Few of them are open at a time.
class WeightFilesWriter {
 public:
  // `plan` must live longer.
  WeightFilesWriter(const WeightFilesPlan* plan, std::string folder)
      : plan_(plan), folder_(std::move(folder)) {}

  // Makes all files, with their headers and of their sizes. One rank of those that share a folder.
  absl::Status Create();
  // Elements of a parameter from `first` on, in files that exist.
  absl::Status Write(int unit, int parameter, int64_t first, absl::Span<const char> bytes);
  // Returns when what was written is on the disk.
  absl::Status Finish();
  // Closes what is open.
  void GiveUp() { open_.clear(); }
  int64_t bytes_written() const { return bytes_written_; }

  // Opens the files as a reader would and compares them with the plan. kDataLoss.
  absl::Status Verify() const;

 private:
  std::string PathOf(size_t file) const;
  absl::StatusOr<const PosixFile*> Open(size_t file);
  absl::Status CloseFirst();

  const WeightFilesPlan* plan_;
  std::string folder_;
  std::deque<std::pair<size_t, PosixFile>> open_;
  int64_t bytes_written_ = 0;
};

}  // namespace zero
