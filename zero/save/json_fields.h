// A JSON document read value by value, strictly: the first thing that is not as it must be is kept.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/relaxed_json.h"

namespace zero {

// A value of the document, with its path ("files[2].bytes") for messages. Getters give 0, "" or
// nothing where the value is not what was asked for, and set *error unless it holds one already: so
// a reader goes straight through a document and looks at *error once. Both arguments live longer.
class JsonField {
 public:
  JsonField(const JsonValue* value, std::string path, absl::Status* error)
      : value_(value), path_(std::move(path)), error_(error) {}

  // kDataLoss: not an object with exactly these keys.
  void MustHave(std::initializer_list<const char*> keys) const;
  JsonField Member(const std::string& key) const;
  std::vector<std::pair<std::string, JsonField>> Members() const;
  std::vector<JsonField> Items() const;

  std::string Text() const;
  bool Switch() const;
  int64_t Integer(int64_t least, int64_t most = INT64_MAX) const;
  uint64_t Unsigned() const;  // up to 2^64 - 1
  double Number() const;
  // The one of `choices` that it is.
  std::string Choice(const std::vector<std::string>& choices) const;

  const std::string& path() const { return path_; }
  // "<path> <what> (line 3 column 7)"; what: "is 5, but ...".
  void Refuse(const std::string& what) const;

 private:
  bool Is(JsonValue::Kind kind, const char* wanted) const;

  const JsonValue* value_;  // null: an error was set
  std::string path_;
  absl::Status* error_;
};

}  // namespace zero
