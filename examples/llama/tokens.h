// Training samples from a text file: its bytes are the tokens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace zero::llama {

// One rank's rows of one micro-batch, row after row.
struct Batch {
  std::vector<int32_t> tokens;   // [rows * sequence_length]
  std::vector<int32_t> targets;  // the next token of each; negative: ignored
  int64_t valid_tokens = 0;      // targets that are not negative
};

// How the samples of a step are dealt out. A step takes ranks * micro_batch * accumulation samples,
// the same ones however they are split: sample p of a step goes to micro-batch p / (ranks *
// micro_batch), there to rank p / micro_batch % ranks, there to row p % micro_batch.
struct Dealing {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t micro_batch = 1;
  int64_t accumulation = 1;  // micro-batches of a step
};

enum class SampleOrder : uint8_t { kShuffled, kFile };

// Element `index` of a permutation of [0, n) that is a pure function of (seed, epoch): a Feistel
// network over the next power of four, walked until it lands in range. 0 <= index < n.
int64_t Permute(uint64_t seed, int64_t epoch, int64_t n, int64_t index);

// Sample i is bytes [i T, i T + T] of the file: T tokens and, one further on, their targets. What
// is left at the end of the file is not used. Safe from several threads once open.
class ByteDataset {
 public:
  static constexpr int64_t kVocabulary = 256;

  struct Options {
    int64_t sequence_length = 0;  // T
    SampleOrder order = SampleOrder::kShuffled;
    uint64_t seed = 0;
  };

  // Reads the whole file. kInvalidArgument names the path and the sizes.
  static absl::StatusOr<ByteDataset> Open(const std::string& path, const Options& options);

  int64_t bytes() const { return static_cast<int64_t>(data_.size()); }
  int64_t samples() const { return samples_; }
  // A hash of all bytes: other texts have another one, but for chance.
  uint64_t hash() const;
  // The epoch that sample number `position` (0, 1, ... without end) falls in: position / samples().
  int64_t EpochOf(int64_t position) const { return position / samples_; }
  // Which sample that is.
  int64_t SampleAt(int64_t position) const;

  // What rank `dealing.rank` gets in micro-batch `micro` of step `step` (both from 0).
  absl::StatusOr<Batch> FillBatch(int64_t step, int64_t micro, const Dealing& dealing) const;

 private:
  ByteDataset(std::vector<uint8_t> data, const Options& options, int64_t samples)
      : data_(std::move(data)), options_(options), samples_(samples) {}

  std::vector<uint8_t> data_;
  Options options_;
  int64_t samples_;
};

}  // namespace zero::llama
