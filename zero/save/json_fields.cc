#include "zero/save/json_fields.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace zero {
namespace {

// The value for messages.
std::string Shown(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  if (value.kind == Kind::kList) return "a list";
  if (value.kind == Kind::kObject) return "an object";
  constexpr size_t kLimit = 60;
  if (value.text.size() <= kLimit) return ToText(value);
  return absl::StrCat("a text of ", value.text.size(), " bytes");
}

}  // namespace

void JsonField::Refuse(const std::string& what) const {
  if (!error_->ok()) return;
  const std::string place =
      value_ == nullptr ? "" : absl::StrCat(" (", ToString(value_->place), ")");
  *error_ =
      absl::DataLossError(absl::StrCat(path_.empty() ? "the document" : path_, " ", what, place));
}

bool JsonField::Is(JsonValue::Kind kind, const char* wanted) const {
  if (value_ != nullptr && value_->kind == kind) return true;
  if (value_ != nullptr) {
    Refuse(absl::StrCat("is ", Shown(*value_), "; it must be ", wanted));
  }
  return false;
}

void JsonField::MustHave(std::initializer_list<const char*> keys) const {
  if (!Is(JsonValue::Kind::kObject, "an object")) return;
  for (const char* key : keys) Member(key);
  for (const JsonMember& member : value_->members) {
    const auto known = [&](const char* key) { return member.key == key; };
    if (std::none_of(keys.begin(), keys.end(), known)) {
      Refuse(absl::StrCat("has an unknown key ", Quoted(member.key.substr(0, 80)), ", at ",
                          ToString(member.place)));
    }
  }
}

JsonField JsonField::Member(const std::string& key) const {
  const std::string path = path_.empty() ? key : absl::StrCat(path_, ".", key);
  if (!Is(JsonValue::Kind::kObject, "an object")) return JsonField(nullptr, path, error_);
  const JsonMember* const member = value_->Find(key);
  const JsonField field(member == nullptr ? nullptr : &member->value, path, error_);
  if (member == nullptr) field.Refuse("is missing");
  return field;
}

std::vector<std::pair<std::string, JsonField>> JsonField::Members() const {
  std::vector<std::pair<std::string, JsonField>> fields;
  if (!Is(JsonValue::Kind::kObject, "an object")) return fields;
  for (const JsonMember& member : value_->members) {
    fields.emplace_back(
        member.key,
        JsonField(&member.value, absl::StrCat(path_, "[", Quoted(member.key), "]"), error_));
  }
  return fields;
}

std::vector<JsonField> JsonField::Items() const {
  std::vector<JsonField> fields;
  if (!Is(JsonValue::Kind::kList, "a list")) return fields;
  fields.reserve(value_->items.size());
  for (size_t i = 0; i < value_->items.size(); ++i) {
    fields.emplace_back(&value_->items[i], absl::StrCat(path_, "[", i, "]"), error_);
  }
  return fields;
}

std::string JsonField::Text() const {
  return Is(JsonValue::Kind::kString, "a text") ? value_->text : "";
}

bool JsonField::Switch() const {
  return Is(JsonValue::Kind::kBoolean, "true or false") && value_->text == "true";
}

int64_t JsonField::Integer(int64_t least, int64_t most) const {
  if (!Is(JsonValue::Kind::kNumber, "a whole number")) return 0;
  const absl::StatusOr<int64_t> number = ExactInteger(value_->text);
  if (number.ok() && *number >= least && *number <= most) return *number;
  Refuse(absl::StrCat("is ", Shown(*value_), "; it must be a whole number from ", least, " ",
                      most == INT64_MAX ? "on" : absl::StrCat("to ", most)));
  return 0;
}

uint64_t JsonField::Unsigned() const {
  uint64_t number = 0;
  if (!Is(JsonValue::Kind::kNumber, "a whole number")) return 0;
  if (IsJsonNumber(value_->text) && absl::SimpleAtoi(value_->text, &number)) return number;
  Refuse(absl::StrCat("is ", Shown(*value_), "; it must be a whole number from 0 to 2^64 - 1"));
  return 0;
}

double JsonField::Number() const {
  if (!Is(JsonValue::Kind::kNumber, "a number")) return 0;
  const absl::StatusOr<double> number = NearestDouble(value_->text);
  if (number.ok()) return *number;
  Refuse(absl::StrCat("is ", Shown(*value_), "; it must be a finite number"));
  return 0;
}

std::string JsonField::Choice(const std::vector<std::string>& choices) const {
  const std::string text = Text();
  if (value_ == nullptr || value_->kind != JsonValue::Kind::kString) return text;
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    Refuse(
        absl::StrCat("is ", Shown(*value_), "; it must be one of ", absl::StrJoin(choices, ", ")));
  }
  return text;
}

}  // namespace zero
