// Training samples from a file: a text, whose bytes are the tokens, or the ids of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/posix_file.h"

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

// What a file holds. kLlmC: the layout of llm.c's shards, a header of 256 words of 32 bits, then
// ids of 16 bits (magic 20240520, version 1) or of 32 (20240801, version 7). kUint16, kUint32: ids
// and nothing else. kAuto: kLlmC where the header says so, else kText, unless it cannot be a text.
// Everything is little-endian.
enum class TokenFormat : uint8_t { kAuto, kText, kLlmC, kUint16, kUint32 };
// "auto", "text", "llmc", "uint16", "uint32"
const char* Name(TokenFormat format);
absl::StatusOr<TokenFormat> ParseTokenFormat(const std::string& name);

// Sample i is tokens [i T, i T + T] of the file: T tokens and, one further on, their targets. What
// is left at the end of the file is not used. The file stays on the disk, where each batch is read
// from. Safe from several threads once open.
class TokenDataset {
 public:
  static constexpr int64_t kByteVocabulary = 256;

  struct Options {
    int64_t sequence_length = 0;  // T
    SampleOrder order = SampleOrder::kShuffled;
    uint64_t seed = 0;
    TokenFormat format = TokenFormat::kAuto;
    int64_t vocabulary = kByteVocabulary;  // ids are below it
  };

  // Reads the file once: sizes, its hash, and that every id is in the vocabulary. kInvalidArgument
  // names the path and what is wrong: sizes, or the first id that is not, and where.
  static absl::StatusOr<TokenDataset> Open(const std::string& path, const Options& options);

  int64_t tokens() const { return tokens_; }
  int64_t samples() const { return samples_; }
  TokenFormat format() const { return format_; }  // never kAuto
  // "bytes", "ids of 16 bits": what a token is in the file.
  std::string Unit() const;
  // "6000 bytes"
  std::string Summary() const;
  // A hash of the whole file: others have another one, but for chance.
  uint64_t hash() const { return hash_; }
  // The epoch that sample number `position` (0, 1, ... without end) falls in: position / samples().
  int64_t EpochOf(int64_t position) const { return position / samples_; }
  // Which sample that is: a function of the seed, the epoch and the place in it.
  int64_t SampleAt(int64_t position) const;

  // What rank `dealing.rank` gets in micro-batch `micro` of a step that begins with sample number
  // `position`. kDataLoss: the file is not any more what it was.
  absl::StatusOr<Batch> FillBatch(int64_t position, int64_t micro, const Dealing& dealing) const;

 private:
  TokenDataset(PosixFile file, const Options& options)
      : file_(std::move(file)), options_(options) {}

  absl::Status FindFormat();
  absl::Status ReadHeader(absl::Span<const char> header);
  absl::Status CheckSizes();
  absl::Status Scan();
  absl::Status Wrong(const std::string& why) const;
  // Appends the tokens of `bytes`; kInvalidArgument: an id that is not in the vocabulary, and its
  // number in the file, the first of `bytes` being `first`.
  absl::Status Decode(absl::Span<const char> bytes, int64_t first,
                      std::vector<int32_t>& tokens) const;

  PosixFile file_;
  Options options_;
  TokenFormat format_ = TokenFormat::kText;
  int64_t start_ = 0;  // byte of the first token
  int64_t width_ = 1;  // bytes of a token
  int64_t tokens_ = 0;
  int64_t samples_ = 0;
  uint64_t hash_ = 0;
};

// Samples that a step takes.
inline int64_t SamplesPerStep(const Dealing& dealing) {
  return dealing.ranks * dealing.micro_batch * dealing.accumulation;
}

}  // namespace zero::llama
