#include "examples/llama/tokens.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace zero::llama {
namespace {

// SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

absl::Status Wrong(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("text '", path, "': ", why));
}

}  // namespace

int64_t Permute(uint64_t seed, int64_t epoch, int64_t n, int64_t index) {
  constexpr int kRounds = 6;
  const auto largest = static_cast<uint64_t>(n > 1 ? n - 1 : 1);
  const int half = (static_cast<int>(std::bit_width(largest)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = Mix(seed ^ Mix(static_cast<uint64_t>(epoch)));
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (Mix(key + Mix(right) + static_cast<uint64_t>(round)) & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

absl::StatusOr<ByteDataset> ByteDataset::Open(const std::string& path, const Options& options) {
  if (options.sequence_length < 1) {
    return Wrong(path, absl::StrCat("the sequence length must be at least 1; it is ",
                                    options.sequence_length));
  }
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return Wrong(path, "no such file");
  if (std::filesystem::is_directory(status)) return Wrong(path, "is a folder, not a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return Wrong(path, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  std::vector<uint8_t> data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return Wrong(path, "cannot be read");
  const auto bytes = static_cast<int64_t>(data.size());
  if (bytes == 0) return Wrong(path, "is empty");
  const int64_t samples = (bytes - 1) / options.sequence_length;
  if (samples == 0) {
    return Wrong(path,
                 absl::StrCat("has ", bytes, " bytes; one sample of ", options.sequence_length,
                              " tokens and their targets needs ", options.sequence_length + 1));
  }
  return ByteDataset(std::move(data), options, samples);
}

uint64_t ByteDataset::hash() const {
  uint64_t hash = Mix(data_.size());
  for (size_t at = 0; at < data_.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data_.data() + at, std::min(sizeof(word), data_.size() - at));
    hash = Mix(hash ^ word);
  }
  return hash;
}

int64_t ByteDataset::SampleAt(int64_t position) const {
  const int64_t index = position % samples_;
  if (options_.order == SampleOrder::kFile) return index;
  return Permute(options_.seed, EpochOf(position), samples_, index);
}

absl::StatusOr<Batch> ByteDataset::FillBatch(int64_t step, int64_t micro,
                                             const Dealing& dealing) const {
  const Dealing& d = dealing;
  if (d.ranks < 1 || d.rank < 0 || d.rank >= d.ranks || d.micro_batch < 1 || d.accumulation < 1 ||
      step < 0 || micro < 0 || micro >= d.accumulation) {
    return absl::InvalidArgumentError(absl::StrCat("no such batch: step ", step, ", micro-batch ",
                                                   micro, " of ", d.accumulation, ", rank ", d.rank,
                                                   " of ", d.ranks, ", ", d.micro_batch, " rows"));
  }
  const int64_t length = options_.sequence_length;
  const int64_t global_batch = d.ranks * d.micro_batch * d.accumulation;
  const int64_t first =
      step * global_batch + micro * d.ranks * d.micro_batch + d.rank * d.micro_batch;
  Batch batch;
  for (int64_t row = 0; row < d.micro_batch; ++row) {
    const auto start = data_.begin() + SampleAt(first + row) * length;
    batch.tokens.insert(batch.tokens.end(), start, start + length);
    batch.targets.insert(batch.targets.end(), start + 1, start + length + 1);
  }
  batch.valid_tokens = d.micro_batch * length;
  return batch;
}

}  // namespace zero::llama
