// The JSON header of a safetensors file, as text and as a list.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace zero {

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// Accepts one JSON object of tensor entries and at most one "__metadata__" of strings (or null).
// Refused: duplicate keys, values of the wrong type, text after the object, nesting past 128
// levels, more than kSafetensorsRankLimit dimensions. Unknown fields of an entry are skipped. Sizes
// and places are not looked at. kDataLoss, naming tensor or byte of the text, without the path.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& text);

// The text for `header`, padded with spaces to a multiple of 8 bytes. kInvalidArgument if a name or
// metadata is not UTF-8.
absl::StatusOr<std::string> FormatSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace zero
