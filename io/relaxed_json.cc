#include "io/relaxed_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace zero {
namespace {

constexpr int kNestingLimit = 64;

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Bytes of the UTF-8 character at `at`; 0 where there is none.
size_t CharacterLength(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC0 || first >= 0xF8) return 0;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  uint32_t code = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  // The least code of each length: shorter ones have a shorter form.
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast[length] || code > 0x10FFFF || surrogate ? 0 : length;
}

void AppendUtf8(uint32_t code, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

bool IsWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '+' || c == '-' ||
         c == '.';
}

// For messages: control characters escaped.
std::string Printable(const std::string& text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      printable += c;
    }
  }
  return printable;
}

class Reader {
 public:
  Reader(const std::string& text, bool strict, std::vector<JsonProblem>& problems)
      : text_(text), strict_(strict), problems_(problems) {}

  std::optional<JsonValue> Document() {
    if (text_.compare(0, 3, "\xEF\xBB\xBF") == 0) at_ = 3;
    if (!CheckUtf8()) return std::nullopt;
    if (!SkipBlanks()) return std::nullopt;
    if (AtEnd()) {
      Problem(place_, strict_ ? "there is no value, only blanks"
                              : "there is no value, only blanks and comments");
      return std::nullopt;
    }
    JsonValue value;
    if (!Value(0, value) || !SkipBlanks()) return std::nullopt;
    if (!AtEnd()) {
      Problem(place_, absl::StrCat("something follows the end of the document: ", Here()));
      return std::nullopt;
    }
    return value;
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char Take() {
    const char c = text_[at_++];
    if (c == '\n') {
      place_ = {place_.line + 1, 1};
    } else if (!Continues(c)) {
      ++place_.column;
    }
    return c;
  }

  void Problem(const TextPlace& place, std::string text) {
    problems_.push_back({place, std::move(text)});
  }
  bool Fail(const TextPlace& place, std::string text) {
    Problem(place, std::move(text));
    return false;
  }
  // What comes next, for messages.
  std::string Here() const {
    if (AtEnd()) return "the end of the text";
    size_t end = at_;
    while (end < text_.size() && IsWord(text_[end]) && end - at_ < 40) ++end;
    if (end == at_) end += std::max<size_t>(CharacterLength(text_, at_), 1);
    return absl::StrCat("'", Printable(text_.substr(at_, end - at_)), "'");
  }

  bool CheckUtf8() {
    TextPlace place;
    for (size_t i = at_; i < text_.size();) {
      const size_t length = CharacterLength(text_, i);
      if (length == 0) return Fail(place, "is not UTF-8");
      place =
          text_[i] == '\n' ? TextPlace{place.line + 1, 1} : TextPlace{place.line, place.column + 1};
      i += length;
    }
    return true;
  }

  // False: a comment has no end.
  bool SkipBlanks() {
    while (!AtEnd()) {
      const char c = Peek();
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        Take();
      } else if (strict_) {
        return true;
      } else if (c == '#' || (c == '/' && Peek(1) == '/')) {
        while (!AtEnd() && Peek() != '\n') Take();
      } else if (c == '/' && Peek(1) == '*') {
        const TextPlace begin = place_;
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string::npos) return Fail(begin, "the comment that begins here has no end");
        while (at_ < end + 2) Take();
      } else {
        return true;
      }
    }
    return true;
  }

  bool Value(int depth, JsonValue& value) {
    value.place = place_;
    switch (Peek()) {
      case '{':
        return Object(depth, value);
      case '[':
        return List(depth, value);
      case '"':
        value.kind = JsonValue::Kind::kString;
        return String(value.text);
      default:
        return Word(value);
    }
  }

  bool Nests(int depth, const JsonValue& value) {
    return depth < kNestingLimit ||
           Fail(value.place, absl::StrCat("nests more than ", kNestingLimit, " levels"));
  }

  // After an item: whether to go on (`more`) or the closing bracket was taken.
  bool AfterItem(char close, const char* what, bool& more) {
    if (!SkipBlanks()) return false;
    const bool comma = Peek() == ',';
    const TextPlace here = place_;
    if (comma) {
      Take();
      if (!SkipBlanks()) return false;
    }
    more = Peek() != close;
    if (!more) {
      if (comma && strict_) return Fail(here, absl::StrCat("a comma before the end of ", what));
      Take();
      return true;
    }
    // At the end of the text the next item says what is missing.
    if (comma || AtEnd()) return true;
    const bool begins = close == '}'
                            ? Peek() == '"'
                            : Peek() == '"' || Peek() == '{' || Peek() == '[' || IsWord(Peek());
    if (!begins) {
      return Fail(place_, absl::StrCat("expected a comma or the end of ", what, ", not ", Here()));
    }
    Problem(place_, absl::StrCat("a comma is missing before ", Next()));
    return true;
  }
  // The whole string or word that comes next.
  std::string Next() const {
    if (Peek() != '"') return Here();
    const size_t end = text_.find_first_of("\"\n", at_ + 1);
    return Printable(text_.substr(at_, std::min(end, at_ + 60) - at_ + 1));
  }

  bool Object(int depth, JsonValue& value) {
    value.kind = JsonValue::Kind::kObject;
    if (!Nests(depth, value)) return false;
    Take();
    if (!SkipBlanks()) return false;
    bool more = Peek() != '}';
    if (!more) Take();
    std::unordered_map<std::string, TextPlace> places;  // of the keys: an object may have many
    while (more) {
      JsonMember member;
      member.place = place_;
      if (AtEnd()) return Fail(value.place, "the object that begins here has no end");
      if (Peek() != '"') {
        return Fail(place_, absl::StrCat("expected a key in double quotes, not ", Here()));
      }
      if (!String(member.key) || !SkipBlanks()) return false;
      if (Peek() != ':') {
        return Fail(place_, absl::StrCat("expected a colon after key ", Quoted(member.key),
                                         ", not ", Here()));
      }
      Take();
      if (!SkipBlanks() || !Value(depth + 1, member.value)) return false;
      const auto [first, is_new] = places.emplace(member.key, member.place);
      if (is_new) {
        value.members.push_back(std::move(member));
      } else {
        Problem(member.place, absl::StrCat("key ", Quoted(member.key), " occurs twice; first at ",
                                           ToString(first->second)));
      }
      if (!AfterItem('}', "the object", more)) return false;
    }
    return true;
  }

  bool List(int depth, JsonValue& value) {
    value.kind = JsonValue::Kind::kList;
    if (!Nests(depth, value)) return false;
    Take();
    if (!SkipBlanks()) return false;
    bool more = Peek() != ']';
    if (!more) Take();
    while (more) {
      if (AtEnd()) return Fail(value.place, "the list that begins here has no end");
      value.items.emplace_back();
      if (!Value(depth + 1, value.items.back())) return false;
      if (!AfterItem(']', "the list", more)) return false;
    }
    return true;
  }

  bool Word(JsonValue& value) {
    size_t end = at_;
    while (end < text_.size() && IsWord(text_[end])) ++end;
    const std::string word = text_.substr(at_, end - at_);
    if (word == "true" || word == "false") {
      value.kind = JsonValue::Kind::kBoolean;
    } else if (word == "null") {
      value.kind = JsonValue::Kind::kNull;
    } else if (IsJsonNumber(word) ||
               (!strict_ && (word == "NaN" || word == "Infinity" || word == "-Infinity"))) {
      value.kind = JsonValue::Kind::kNumber;
    } else {
      return Fail(place_, absl::StrCat("expected a value, not ", Here()));
    }
    value.text = word;
    while (at_ < end) Take();
    return true;
  }

  bool String(std::string& out) {
    const TextPlace begin = place_;
    Take();
    while (true) {
      if (AtEnd() || Peek() == '\n') {
        return Fail(begin, "the string that begins here has no closing quote on its line");
      }
      const TextPlace here = place_;
      const char c = Take();
      if (c == '"') return true;
      if (c != '\\') {
        if (static_cast<unsigned char>(c) < 0x20) {
          return Fail(here, "a control character in a string must be escaped");
        }
        out.push_back(c);
      } else if (!Escape(here, out)) {
        return false;
      }
    }
  }

  bool Escape(const TextPlace& here, std::string& out) {
    constexpr char kNames[] = "\"\\/bfnrt";
    constexpr char kValues[] = "\"\\/\b\f\n\r\t";
    if (AtEnd()) return Fail(here, "an escape has no end");
    const char name = Take();
    for (size_t i = 0; i + 1 < sizeof(kNames); ++i) {
      if (name != kNames[i]) continue;
      out.push_back(kValues[i]);
      return true;
    }
    uint32_t code = 0;
    uint32_t low = 0;
    if (name != 'u' || !FourDigits(code)) return Fail(here, "unknown escape in a string");
    if (code >= 0xD800 && code < 0xDC00) {
      if (Peek() != '\\' || Peek(1) != 'u') return Fail(here, "half a surrogate pair");
      Take();
      Take();
      if (!FourDigits(low) || low < 0xDC00 || low > 0xDFFF) {
        return Fail(here, "half a surrogate pair");
      }
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return Fail(here, "half a surrogate pair");
    }
    AppendUtf8(code, out);
    return true;
  }

  bool FourDigits(uint32_t& code) {
    code = 0;
    for (int i = 0; i < 4; ++i) {
      const auto c = static_cast<unsigned char>(Peek());
      if (!absl::ascii_isxdigit(c)) return false;
      const int digit = absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
      code = code * 16 + static_cast<uint32_t>(digit);
      Take();
    }
    return true;
  }

  const std::string& text_;
  const bool strict_;
  std::vector<JsonProblem>& problems_;
  size_t at_ = 0;
  TextPlace place_;
};

size_t DigitsFrom(const std::string& text, size_t at) {
  size_t end = at;
  while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
  return end - at;
}

}  // namespace

std::string ToString(const TextPlace& place) {
  return absl::StrCat("line ", place.line, " column ", place.column);
}

const JsonMember* JsonValue::Find(const std::string& key) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const JsonMember& member) { return member.key == key; });
  return found == members.end() ? nullptr : &*found;
}

std::optional<JsonValue> ReadRelaxedJson(const std::string& text,
                                         std::vector<JsonProblem>& problems) {
  return Reader(text, /*strict=*/false, problems).Document();
}

std::optional<JsonValue> ReadStrictJson(const std::string& text,
                                        std::vector<JsonProblem>& problems) {
  const size_t before = problems.size();
  std::optional<JsonValue> value = Reader(text, /*strict=*/true, problems).Document();
  if (problems.size() > before) value.reset();
  return value;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad4));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string ToText(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  if (value.kind == Kind::kString) return Quoted(value.text);
  if (value.kind == Kind::kNull) return "null";
  if (value.kind == Kind::kList) {
    return absl::StrCat(
        "[",
        absl::StrJoin(value.items, ", ",
                      [](std::string* out, const JsonValue& item) { out->append(ToText(item)); }),
        "]");
  }
  if (value.kind == Kind::kObject) {
    return absl::StrCat("{",
                        absl::StrJoin(value.members, ", ",
                                      [](std::string* out, const JsonMember& member) {
                                        absl::StrAppend(out, Quoted(member.key), ": ",
                                                        ToText(member.value));
                                      }),
                        "}");
  }
  return value.text;
}

bool IsJsonNumber(const std::string& text) {
  size_t at = text.compare(0, 1, "-") == 0 ? 1 : 0;
  const size_t whole = DigitsFrom(text, at);
  if (whole == 0 || (whole > 1 && text[at] == '0')) return false;
  at += whole;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = DigitsFrom(text, at + 1);
    if (fraction == 0) return false;
    at += 1 + fraction;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = DigitsFrom(text, at);
    if (exponent == 0) return false;
    at += exponent;
  }
  return at == text.size();
}

absl::StatusOr<int64_t> ExactInteger(const std::string& number) {
  if (!IsJsonNumber(number)) return absl::InvalidArgumentError("is not a number");
  const bool negative = number[0] == '-';
  const size_t mark = std::min(number.find_first_of("eE"), number.size());
  std::string digits = number.substr(negative ? 1 : 0, mark - (negative ? 1 : 0));
  int64_t shift = 0;  // the value is digits x 10^shift
  if (mark < number.size()) {
    std::string exponent = number.substr(mark + 1);
    const bool down = exponent[0] == '-';
    exponent.erase(0, std::min(exponent.find_first_not_of("+-0"), exponent.size()));
    // Longer ones are past any number of digits that fits in memory.
    if (exponent.size() > 15) exponent = "1000000000000000";
    if (!exponent.empty() && !absl::SimpleAtoi(exponent, &shift)) shift = 0;
    if (down) shift = -shift;
  }
  const size_t point = digits.find('.');
  if (point != std::string::npos) {
    shift -= static_cast<int64_t>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  const size_t significant = digits.find_last_not_of('0') + 1;
  shift += static_cast<int64_t>(digits.size() - significant);
  digits.resize(significant);
  if (shift < 0) return absl::InvalidArgumentError("has a fraction");
  int64_t value = 0;
  if (shift > 18) return absl::InvalidArgumentError("is out of range");
  digits.append(static_cast<size_t>(shift), '0');
  if (!absl::SimpleAtoi((negative ? "-" : "") + digits, &value)) {
    return absl::InvalidArgumentError("is out of range");
  }
  return value;
}

absl::StatusOr<double> NearestDouble(const std::string& number) {
  double value = 0;
  if (!IsJsonNumber(number) || !absl::SimpleAtod(number, &value)) {
    return absl::InvalidArgumentError("is not a finite number");
  }
  if (!std::isfinite(value)) return absl::InvalidArgumentError("is out of range");
  return value;
}

}  // namespace zero
