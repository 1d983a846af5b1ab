#include "io/safetensors_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "io/safetensors_layout.h"

namespace zero {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
constexpr int kNestingLimit = 128;

// Receives the events of the JSON parser, which keeps no stack of its own that deep nesting could
// overflow, and builds the list; each method returns whether to go on.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& text) : text_(text) {}

  absl::StatusOr<SafetensorsHeader> Take() {
    if (!error_.empty()) return absl::DataLossError(error_);
    return std::move(header_);
  }

  bool null() override {
    if (place_ == Place::kRoot && name_ == kMetadataKey) return true;
    return Scalar("null", nullptr, nullptr);
  }
  bool boolean(bool) override { return Scalar("a boolean", nullptr, nullptr); }
  bool number_integer(number_integer_t) override {
    return Scalar("a negative number", nullptr, nullptr);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Scalar("a number", nullptr, &value);
  }
  bool number_float(number_float_t, const string_t&) override {
    return Scalar("a number that is no 64-bit integer", nullptr, nullptr);
  }
  bool string(string_t& value) override { return Scalar("a string", &value, nullptr); }
  bool binary(binary_t&) override { return Scalar("binary", nullptr, nullptr); }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kDocument:
        return Enter(Place::kRoot);
      case Place::kRoot:
        if (name_ == kMetadataKey) return Enter(Place::kMetadata);
        tensor_ = SafetensorsTensor();
        fields_seen_ = 0;
        return Enter(Place::kEntry);
      case Place::kEntry:
        if (field_ == Field::kUnknown) return Skip();
        return RefuseValue("an object");
      case Place::kSkipped:
        return Skip();
      default:
        return RefuseValue("an object");
    }
  }

  bool key(string_t& value) override {
    switch (place_) {
      case Place::kRoot:
        name_ = value;
        if (!names_.insert(value).second) return Refuse(Here() + " occurs twice");
        return true;
      case Place::kMetadata:
        metadata_key_ = value;
        if (header_.metadata.count(value) != 0) return Refuse(Here() + " occurs twice");
        return true;
      case Place::kEntry:
        return StartField(value);
      default:
        return true;
    }
  }

  bool end_object() override {
    if (place_ == Place::kSkipped) return Unskip();
    if (place_ == Place::kEntry) {
      if (fields_seen_ != 7) return Refuse(DescribeTensor(name_) + " lacks " + MissingField());
      tensor_.name = name_;
      header_.tensors.push_back(std::move(tensor_));
    }
    return Enter(place_ == Place::kRoot ? Place::kDone : Place::kRoot);
  }

  bool start_array(size_t) override {
    if (place_ == Place::kEntry) {
      if (field_ == Field::kShape) return Enter(Place::kShape);
      if (field_ == Field::kOffsets) {
        offsets_seen_ = 0;
        return Enter(Place::kOffsets);
      }
      if (field_ == Field::kUnknown) return Skip();
    }
    if (place_ == Place::kSkipped) return Skip();
    return RefuseValue("a list");
  }

  bool end_array() override {
    if (place_ == Place::kSkipped) return Unskip();
    if (place_ == Place::kOffsets && offsets_seen_ != 2) {
      return Refuse(absl::StrCat(Here(), " has ", offsets_seen_, " of 2 numbers"));
    }
    return Enter(Place::kEntry);
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    const size_t at = std::min(position == 0 ? 0 : position - 1, text_.size());
    const size_t from = at < 16 ? 0 : at - 16;
    return Refuse(absl::StrCat("the header is not valid JSON at byte ", at, " of ", text_.size(),
                               ", after \"", absl::CHexEscape(text_.substr(from, at - from)),
                               "\""));
  }

 private:
  enum class Place { kDocument, kRoot, kMetadata, kEntry, kShape, kOffsets, kSkipped, kDone };
  enum class Field { kUnknown = 0, kDType = 1, kShape = 2, kOffsets = 4 };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }
  // Values of unknown fields: only their depth matters.
  bool Skip() {
    if (++skipped_depth_ > kNestingLimit) {
      return Refuse(absl::StrCat(Here(), " nests more than ", kNestingLimit, " levels"));
    }
    return Enter(Place::kSkipped);
  }
  bool Unskip() { return --skipped_depth_ > 0 || Enter(Place::kEntry); }

  bool Refuse(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }
  bool RefuseValue(const char* kind) { return Refuse(absl::StrCat(Here(), " is ", kind)); }

  // What is being read, for messages.
  std::string Here() const {
    switch (place_) {
      case Place::kRoot:
        return name_ == kMetadataKey ? std::string(kMetadataKey) : DescribeTensor(name_);
      case Place::kMetadata:
        return absl::StrCat(kMetadataKey, " '", absl::Utf8SafeCEscape(metadata_key_.substr(0, 80)),
                            "'");
      case Place::kEntry:
      case Place::kSkipped:
        return absl::StrCat(DescribeTensor(name_), field_name_.empty() ? "" : ": ", field_name_);
      case Place::kShape:
        return DescribeTensor(name_) + ": a dimension of shape";
      case Place::kOffsets:
        return DescribeTensor(name_) + ": data_offsets";
      default:
        return "the root of the header";
    }
  }

  const char* MissingField() const {
    if ((fields_seen_ & 1) == 0) return "dtype";
    return (fields_seen_ & 2) == 0 ? "shape" : "data_offsets";
  }

  bool StartField(const std::string& name) {
    field_name_ = "";
    field_ = Field::kUnknown;
    if (name == "dtype") field_ = Field::kDType;
    if (name == "shape") field_ = Field::kShape;
    if (name == "data_offsets") field_ = Field::kOffsets;
    const int bit = static_cast<int>(field_);
    if (bit == 0) return true;
    field_name_ = name;
    if ((fields_seen_ & bit) != 0) return Refuse(Here() + " occurs twice");
    fields_seen_ |= bit;
    return true;
  }

  bool Scalar(const char* kind, const std::string* text, const uint64_t* number) {
    switch (place_) {
      case Place::kRoot:
        return RefuseValue(kind);
      case Place::kMetadata:
        if (text == nullptr) return Refuse(absl::StrCat(Here(), " is ", kind, ", not a string"));
        header_.metadata[metadata_key_] = *text;
        return true;
      case Place::kEntry:
        if (field_ == Field::kUnknown) return true;
        if (field_ != Field::kDType || text == nullptr) return RefuseValue(kind);
        tensor_.dtype = *text;
        return true;
      case Place::kShape:
      case Place::kOffsets:
        if (number == nullptr) return RefuseValue(kind);
        return Number(*number);
      case Place::kSkipped:
        return true;
      default:
        return RefuseValue(kind);
    }
  }

  bool Number(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Refuse(absl::StrCat(Here(), " is ", value, ", past 2^63"));
    }
    if (place_ == Place::kShape) {
      if (tensor_.shape.size() == kSafetensorsRankLimit) {
        return Refuse(absl::StrCat(DescribeTensor(name_), ": more than ", kSafetensorsRankLimit,
                                   " dimensions"));
      }
      tensor_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (offsets_seen_ == 2) return Refuse(Here() + " has more than 2 numbers");
    (offsets_seen_ == 0 ? tensor_.begin : tensor_.end) = static_cast<int64_t>(value);
    ++offsets_seen_;
    return true;
  }

  const std::string& text_;
  std::string error_;
  SafetensorsHeader header_;
  Place place_ = Place::kDocument;
  std::unordered_set<std::string> names_;
  std::string name_;  // the key of the root that is being read
  std::string metadata_key_;
  SafetensorsTensor tensor_;
  Field field_ = Field::kUnknown;
  std::string field_name_;  // empty for an unknown field
  int fields_seen_ = 0;     // bits of Field
  int offsets_seen_ = 0;
  int skipped_depth_ = 0;
};

// Throws Json::exception where `text` is not UTF-8.
std::string Quoted(const std::string& text) { return Json(text).dump(); }

std::string Format(const SafetensorsHeader& header) {
  std::vector<std::string> entries;
  if (!header.metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : header.metadata) {
      pairs.push_back(Quoted(key) + ":" + Quoted(value));
    }
    entries.push_back(absl::StrCat("\"", kMetadataKey, "\":{", absl::StrJoin(pairs, ","), "}"));
  }
  for (const SafetensorsTensor& tensor : header.tensors) {
    entries.push_back(absl::StrCat(Quoted(tensor.name), ":{\"dtype\":", Quoted(tensor.dtype),
                                   ",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                                   "],\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}"));
  }
  std::string text = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& text) {
  // The parser takes a NUL for the end of its input.
  const size_t nul = text.find('\0');
  if (nul != std::string::npos) {
    return absl::DataLossError(
        absl::StrCat("the header has a NUL at byte ", nul, " of ", text.size()));
  }
  HeaderReader reader(text);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.Take();
}

absl::StatusOr<std::string> FormatSafetensorsHeader(const SafetensorsHeader& header) {
  try {
    return Format(header);
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("a tensor's name or the metadata is not UTF-8");
  }
}

}  // namespace zero
