// JSON with the place of every value, as programs write it and as people do in configuration files.
//
// Read here, and not by a packaged reader, because none gives the place of a value, refuses keys
// that occur twice, and takes comments and trailing commas, all at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace zero {

struct TextPlace {
  int64_t line = 1;
  int64_t column = 1;  // in characters
};

// "line 3 column 7"
std::string ToString(const TextPlace& place);

struct JsonMember;

struct JsonValue {
  enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kList, kObject };

  Kind kind = Kind::kNull;
  TextPlace place;
  // "true" or "false"; a number as it is written, NaN and Infinity included; a string's characters.
  std::string text;
  std::vector<JsonValue> items;     // of a list
  std::vector<JsonMember> members;  // of an object, in the order of the text, each key once

  const JsonMember* Find(const std::string& key) const;  // null: not there
};

struct JsonMember {
  std::string key;
  TextPlace place;
  JsonValue value;
};

struct JsonProblem {
  TextPlace place;
  std::string text;
};

// Accepts one JSON value in UTF-8, with or without a byte order mark, and besides: comments (// and
// # to the end of the line, /* */), a comma after the last item, and NaN, Infinity and -Infinity as
// Python writes them. Everything wrong is added to `problems`. After a missing comma and a key that
// occurs twice (the first one counts) it reads on; after anything else it gives nothing. Nesting
// stops at 64 levels.
std::optional<JsonValue> ReadRelaxedJson(const std::string& text,
                                         std::vector<JsonProblem>& problems);

// The same for texts that programs write: comments, commas after the last item, NaN and Infinity
// are wrong too, and whatever is wrong, nothing is given.
std::optional<JsonValue> ReadStrictJson(const std::string& text,
                                        std::vector<JsonProblem>& problems);

// One line that reads back as `value`, numbers as they were written.
std::string ToText(const JsonValue& value);
// A string in quotes, its control characters escaped.
std::string Quoted(const std::string& text);

// Whether `text` is a number as JSON writes it.
bool IsJsonNumber(const std::string& text);

// The values of numbers as JSON writes them, whatever the locale. kInvalidArgument says why there
// is none, as the end of a sentence: "has a fraction", "is out of range". "5e8" and "50.0" are
// integers. A double is the nearest one; numbers too small for one are 0.
absl::StatusOr<int64_t> ExactInteger(const std::string& number);
absl::StatusOr<double> NearestDouble(const std::string& number);

}  // namespace zero
