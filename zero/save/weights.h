// What ShardedOptimizer::SaveWeights and LoadWeights are told, and what they say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/dtype.h"

namespace zero {

struct SaveWeightsOptions {
  // Empty: each parameter's own, the bytes as they are. Else parameters of another dtype are
  // rounded once, to nearest with ties to even, from their masters (from the weights where there
  // are none), so that kF32 gives the masters.
  std::optional<DType> dtype;
  // A tensor larger than this is a file of its own.
  int64_t max_shard_bytes = 5'000'000'000;
  // A folder whose files (config.json, a tokenizer, ...) are copied; not those in its folders, not
  // *.safetensors, *.bin, *.pt, *.pth, *.gguf and *.index.json. Empty: none.
  std::string copy_from;
  // Name and content, "config.json" say; they win over those of copy_from.
  std::vector<std::pair<std::string, std::string>> files;
};

struct WeightsSaved {
  int64_t tensors = 0;
  int64_t data_bytes = 0;  // of the tensors
  int files = 0;           // that hold them
  bool shared = false;     // one folder that every rank wrote its own ranges to
};

struct LoadWeightsOptions {
  // Patterns (fnmatch) of tensors in the files that no parameter needs.
  std::vector<std::string> ignored = {"*rotary_emb.inv_freq", "*rotary_emb.original_inv_freq",
                                      "*rotary_emb.cos_cached", "*rotary_emb.sin_cached"};
};

struct WeightsLoaded {
  int64_t tensors = 0;
  int64_t bytes = 0;                 // of them, in the files
  std::vector<std::string> ignored;  // names of tensors that matched a pattern
  std::vector<std::string> notes;    // one line each: what is odd in the folder
  int64_t overflowed = 0;            // values, finite in the file, inf in the parameter's dtype
  std::string first_overflowed;      // tensor, element and value of one
};

}  // namespace zero
