#include "zero/deepspeed_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "zero/deepspeed_meant.h"
#include "zero/nearest_name.h"

namespace zero {
namespace {

using Kind = JsonValue::Kind;

constexpr size_t kLongestShown = 100;

bool IsAutoText(const JsonValue& value) {
  return value.kind == Kind::kString && value.text == "auto";
}

std::string Shown(const JsonValue& value) {
  const std::string text = ToText(value);
  return text.size() <= kLongestShown ? text : text.substr(0, kLongestShown) + "...";
}

std::string Join(const std::string& section, const std::string& key) {
  return section.empty() ? key : absl::StrCat(section, ".", key);
}

// Sections in which DeepSpeed refuses what it does not know, or hands it to what does.
bool IsStrict(const std::string& section) {
  return section == "fp16" || section == "bf16" || section == "optimizer.params" ||
         section == "scheduler.params" || absl::StartsWith(section, "zero_optimization");
}

// How far a name may be from a known one to be a misspelling of it.
size_t Tolerance(const std::string& name) { return name.size() < 6 ? 1 : 2; }

// The name that begins with `key`, else the one with the fewest differences.
std::string Nearest(const std::string& key, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (key.size() >= 4 && absl::StartsWith(name, key)) return name;
  }
  return NearestName(key, names);
}

// The only known key with this last name, in whatever section; empty if there is none or several.
std::string ElsewhereWith(const std::string& name) {
  std::string found;
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    if (LastName(key.path) != name) continue;
    if (!found.empty()) return "";
    found = key.path;
  }
  return found;
}

// Whether what "enabled" says is no. "auto" is the default, which is no; a 1 that Python would take
// for true is a yes.
bool IsOff(const JsonValue& value) {
  return value.kind == Kind::kNull || value.text == "false" || IsAutoText(value);
}

// Whether `value` holds an "enabled" that is not off, at any depth.
bool AnyEnabled(const JsonValue& value) {
  return std::any_of(value.items.begin(), value.items.end(), AnyEnabled) ||
         std::any_of(value.members.begin(), value.members.end(), [](const JsonMember& member) {
           return (member.key == "enabled" && !IsOff(member.value)) || AnyEnabled(member.value);
         });
}

std::string ToJson(const CallerValue& given) {
  struct Writer {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return absl::StrCat(value); }
    std::string operator()(double value) const { return ShortestText(value); }
    std::string operator()(const std::string& value) const { return Quoted(value); }
  };
  return std::visit(Writer(), given.value);
}

const char* Wanted(KeyKind kind) {
  switch (kind) {
    case KeyKind::kSwitch:
      return "true or false";
    case KeyKind::kCount:
      return "a whole number";
    case KeyKind::kNumber:
      return "a number";
    case KeyKind::kText:
      return "a text in quotes";
    case KeyKind::kList:
      return "a list";
    case KeyKind::kSection:
      break;
  }
  return "an object";
}

}  // namespace

std::string ShortestText(double value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

DeepSpeedValues::DeepSpeedValues(const JsonValue& root, const ConfigContext& context,
                                 std::vector<JsonProblem>& problems)
    : context_(context), problems_(problems) {
  if (root.kind != Kind::kObject) {
    problems_.push_back({root.place, "the document must be an object, { ... }"});
    return;
  }
  Walk("", "", root);
}

void DeepSpeedValues::Walk(const std::string& section, const std::string& written,
                           const JsonValue& object) {
  for (const JsonMember& member : object.members) {
    if (absl::StartsWith(member.key, "_")) continue;  // a comment
    const std::string path = PresentPath(Join(section, member.key));
    // A point within a key is no step into a section.
    if (absl::StrContains(member.key, '.') || FindDeepSpeedKey(path) == nullptr) {
      Unknown(section, Join(written, member.key), member);
    } else if (member.value.kind == Kind::kNull) {
      Note(absl::StrCat(Join(written, member.key), " is null: taken as left out"));
    } else {
      Visit(path, member, Join(written, member.key));
    }
  }
}

void DeepSpeedValues::Visit(const std::string& path, const JsonMember& member,
                            const std::string& written) {
  const DeepSpeedKey& key = *FindDeepSpeedKey(path);
  const auto [entry, added] = entries_.emplace(path, Entry{written, &member.value});
  if (!added) {
    problems_.push_back({member.place, absl::StrCat(entry->second.written, " and ", written,
                                                    " are one key in two spellings; keep ", path)});
    return;
  }
  if (LastName(written) != LastName(path) && key.fate == KeyFate::kHonoured) {
    Note(absl::StrCat(written, " is taken as ", path, ", its present name"));
  }
  // The keys of these are looked at one by one.
  const bool opened =
      key.kind == KeyKind::kSection && key.passes[0] == '\0' && !KeysOfSection(path).empty();
  if (!opened) return Judge(key, entry->second);
  if (path == "zero_optimization" && member.value.kind == Kind::kBoolean) return;  // an old form
  if (HasKind(key, entry->second)) Walk(path, written, member.value);
}

void DeepSpeedValues::Unknown(const std::string& section, const std::string& written,
                              const JsonMember& member) {
  const std::string key = member.key.substr(0, kLongestShown);
  const std::string shown = Quoted(written.substr(0, 2 * kLongestShown));
  // A path is written as sections within sections.
  const std::string elsewhere =
      FindDeepSpeedKey(PresentPath(key)) != nullptr ? PresentPath(key) : ElsewhereWith(key);
  if (!elsewhere.empty()) {
    const DeepSpeedKey& there = *FindDeepSpeedKey(elsewhere);
    if (there.fate == KeyFate::kRefused && there.reason[0] != '\0') {
      problems_.push_back({member.place, absl::StrCat("unknown key ", shown, ": ", there.reason)});
      return;
    }
    const std::string home = SectionOf(elsewhere);
    problems_.push_back(
        {member.place,
         absl::StrCat("unknown key ", shown, "; ", Quoted(LastName(elsewhere)), " belongs ",
                      home.empty() ? "at the top of the file" : "in " + home)});
    return;
  }
  const std::string nearest = Nearest(key, KeysOfSection(section));
  const bool near = EditDistance(key, nearest) <= Tolerance(nearest);
  const std::string meant = near ? "" : MeantKey(section, key, member.value);
  const std::string text = absl::StrCat("unknown key ", shown, "; the nearest is ",
                                        Quoted(meant.empty() ? Join(section, nearest) : meant));
  if (IsStrict(section) || near || !meant.empty()) {
    problems_.push_back({member.place, text});
  } else {
    Note(text + "; it is ignored");
  }
}

void DeepSpeedValues::Judge(const DeepSpeedKey& key, const Entry& entry) {
  if (!IsAutoText(*entry.value) && !HasKind(key, entry)) return;
  if (key.fate == KeyFate::kHonoured || Passes(key, *entry.value)) return;
  if (key.fate == KeyFate::kRefused) {
    problems_.push_back(
        {entry.value->place,
         key.kind == KeyKind::kSection
             ? absl::StrCat(entry.written, " does not exist here: ", key.reason)
             : absl::StrCat(entry.written, " is ", Shown(*entry.value), ": ", key.reason)});
  } else if (key.reason[0] != '\0') {
    NoteIgnored(key.path);
  }
}

void DeepSpeedValues::NoteIgnored(const std::string& path) {
  const DeepSpeedKey& key = *FindDeepSpeedKey(path);
  Note(absl::StrCat(Spelled(path), " is ignored: ",
                    key.fate == KeyFate::kAbsent ? "it does not exist here yet; " : "",
                    key.reason));
}

bool DeepSpeedValues::HasKind(const DeepSpeedKey& key, const Entry& entry) {
  const JsonValue& value = *entry.value;
  const auto number = [&]() -> bool {
    return value.kind == Kind::kNumber || (value.kind == Kind::kString && IsJsonNumber(value.text));
  };
  bool right = false;
  std::string why, limit;
  switch (key.kind) {
    case KeyKind::kSwitch:
      right = value.text == "true" || value.text == "false";
      break;
    case KeyKind::kCount: {
      // An old form: "stage": true.
      if (value.kind == Kind::kBoolean && LastName(key.path) == "stage") return true;
      const absl::StatusOr<int64_t> integer = ExactInteger(value.text);
      right = number() && integer.ok();
      if (number() && !right) {
        why = absl::StrCat(", which ", integer.status().message());
        if (integer.status().message() == "is out of range") {
          limit = absl::StrCat(" up to ", std::numeric_limits<int64_t>::max());
        }
      }
      break;
    }
    case KeyKind::kNumber: {
      const absl::StatusOr<double> near = NearestDouble(value.text);
      right = number() && near.ok();
      if (number() && !right) why = absl::StrCat(", which ", near.status().message());
      break;
    }
    case KeyKind::kText:
      right = value.kind == Kind::kString;
      break;
    case KeyKind::kList:
      right = value.kind == Kind::kList;
      break;
    case KeyKind::kSection:
      right = value.kind == Kind::kObject;
      break;
  }
  if (right) return true;
  problems_.push_back({value.place, absl::StrCat(entry.written, " is ", Shown(value), why,
                                                 "; it must be ", Wanted(key.kind), limit)});
  return false;
}

bool DeepSpeedValues::Passes(const DeepSpeedKey& key, const JsonValue& value) const {
  const std::string passes = key.passes;
  if (passes == kNotEnabled) return !AnyEnabled(value);
  if (passes.empty()) return false;
  if (IsAutoText(value)) return true;
  if (key.kind == KeyKind::kCount || key.kind == KeyKind::kNumber) {
    return NearestDouble(value.text).value_or(0) == NearestDouble(passes).value_or(1);
  }
  return absl::EqualsIgnoreCase(key.kind == KeyKind::kText ? Quoted(value.text) : value.text,
                                passes);
}

const JsonValue* DeepSpeedValues::Find(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : found->second.value;
}

bool DeepSpeedValues::IsAuto(const std::string& path) const {
  const JsonValue* value = Find(path);
  return value != nullptr && IsAutoText(*value);
}

const CallerValue* DeepSpeedValues::Given(const std::string& path) const {
  const auto found = context_.given.find(path);
  return found == context_.given.end() ? nullptr : &found->second;
}

template <typename T>
std::optional<T> DeepSpeedValues::GivenAs(const std::string& path) {
  const CallerValue* given = Given(path);
  if (given == nullptr) return std::nullopt;
  if (const T* value = std::get_if<T>(&given->value)) return *value;
  Problem(path,
          absl::StrCat(given->name, " is ", ToJson(*given), ", which is not of the key's type"));
  return std::nullopt;
}

template std::optional<bool> DeepSpeedValues::GivenAs(const std::string&);
template std::optional<int64_t> DeepSpeedValues::GivenAs(const std::string&);
template std::optional<double> DeepSpeedValues::GivenAs(const std::string&);
template std::optional<std::string> DeepSpeedValues::GivenAs(const std::string&);

std::string DeepSpeedValues::Spelled(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? path : found->second.written;
}

const JsonValue* DeepSpeedValues::InFile(const std::string& path) {
  read_.insert(path);
  const JsonValue* value = Find(path);
  return value == nullptr || IsAutoText(*value) ? nullptr : value;
}

void DeepSpeedValues::CheckGiven(const std::string& path, bool same) {
  const CallerValue* given = Given(path);
  if (given == nullptr || same) return;
  Problem(path, absl::StrCat(Spelled(path), " is ", Shown(*Find(path)), ", but ", given->name,
                             " is ", ToJson(*given)));
}

std::optional<std::string> DeepSpeedValues::NumberText(const std::string& path,
                                                       const JsonValue& value) {
  if (value.kind == Kind::kNumber) return value.text;
  if (value.kind != Kind::kString || !IsJsonNumber(value.text)) return std::nullopt;
  if (unquoted_.insert(path).second) {
    Note(absl::StrCat(Spelled(path), " is ", Shown(value), ", a text: taken as the number ",
                      value.text));
  }
  return value.text;
}

std::optional<bool> DeepSpeedValues::MaybeSwitch(const std::string& path) {
  const std::optional<bool> on = GivenAs<bool>(path);
  const JsonValue* value = InFile(path);
  if (value == nullptr) return on;
  if (value->text != "true" && value->text != "false") return std::nullopt;  // said already
  if (value->kind == Kind::kString && unquoted_.insert(path).second) {
    Note(absl::StrCat(Spelled(path), " is ", Shown(*value), ", a text: taken as ", value->text));
  }
  CheckGiven(path, !on.has_value() || *on == (value->text == "true"));
  return value->text == "true";
}

std::optional<int64_t> DeepSpeedValues::MaybeCount(const std::string& path, int64_t least,
                                                   int64_t most) {
  const std::optional<int64_t> count = GivenAs<int64_t>(path);
  const std::string range = most == std::numeric_limits<int64_t>::max()
                                ? absl::StrCat("a whole number of at least ", least)
                                : absl::StrCat("a whole number from ", least, " to ", most);
  const JsonValue* value = InFile(path);
  if (value == nullptr) {
    if (!count.has_value() || (*count >= least && *count <= most)) return count;
    WrongGiven(path, range);
    return std::nullopt;
  }
  const std::optional<std::string> text = NumberText(path, *value);
  const absl::StatusOr<int64_t> number = ExactInteger(text.value_or(""));
  if (!number.ok()) return std::nullopt;  // said already
  if (*number < least || *number > most) {
    Wrong(path, Shown(*value), range);
    return std::nullopt;
  }
  CheckGiven(path, !count.has_value() || *count == *number);
  return *number;
}

std::optional<double> DeepSpeedValues::MaybeNumber(const std::string& path,
                                                   absl::FunctionRef<bool(double)> right,
                                                   const std::string& wanted) {
  const std::optional<double> known = GivenAs<double>(path);
  const JsonValue* value = InFile(path);
  if (value == nullptr) {
    if (!known.has_value() || right(*known)) return known;
    WrongGiven(path, wanted);
    return std::nullopt;
  }
  const std::optional<std::string> text = NumberText(path, *value);
  const absl::StatusOr<double> number = NearestDouble(text.value_or(""));
  if (!number.ok()) return std::nullopt;  // said already
  if (!right(*number)) {
    Wrong(path, Shown(*value), wanted);
    return std::nullopt;
  }
  CheckGiven(path, !known.has_value() || *known == *number);
  return *number;
}

std::optional<std::string> DeepSpeedValues::MaybeText(const std::string& path) {
  const std::optional<std::string> known = GivenAs<std::string>(path);
  const JsonValue* value = InFile(path);
  if (value == nullptr) return known;
  if (value->kind != Kind::kString) return std::nullopt;  // said already
  CheckGiven(path, !known.has_value() || *known == value->text);
  return value->text;
}

std::optional<std::string> DeepSpeedValues::MaybeChoice(const std::string& path,
                                                        const std::vector<std::string>& choices) {
  const std::optional<std::string> known = GivenAs<std::string>(path);
  const JsonValue* value = InFile(path);
  if (value == nullptr && !known.has_value()) return std::nullopt;
  if (value != nullptr && value->kind != Kind::kString) return std::nullopt;  // said already
  for (const std::string& choice : choices) {
    if (!absl::EqualsIgnoreCase(choice, value == nullptr ? *known : value->text)) continue;
    CheckGiven(path, !known.has_value() || absl::EqualsIgnoreCase(*known, choice));
    return choice;
  }
  const std::string wanted = absl::StrJoin(choices, " or ");
  if (value == nullptr) {
    WrongGiven(path, wanted);
  } else {
    Wrong(path, Shown(*value), wanted);
  }
  return std::nullopt;
}

bool DeepSpeedValues::Switch(const std::string& path, bool otherwise) {
  const bool value = MaybeSwitch(path).value_or(otherwise);
  Resolve(path, value ? "true" : "false");
  return value;
}

int64_t DeepSpeedValues::Count(const std::string& path, int64_t otherwise, int64_t least,
                               int64_t most) {
  const int64_t value = MaybeCount(path, least, most).value_or(otherwise);
  Resolve(path, absl::StrCat(value));
  return value;
}

double DeepSpeedValues::Number(const std::string& path, double otherwise,
                               absl::FunctionRef<bool(double)> right, const std::string& wanted) {
  const double value = MaybeNumber(path, right, wanted).value_or(otherwise);
  Resolve(path, ShortestText(value));
  return value;
}

std::string DeepSpeedValues::Choice(const std::string& path, const std::string& otherwise,
                                    const std::vector<std::string>& choices) {
  const std::string value = MaybeChoice(path, choices).value_or(otherwise);
  Resolve(path, Quoted(value));
  return value;
}

std::optional<double> DeepSpeedValues::Item(const std::string& path, size_t index, size_t size,
                                            absl::FunctionRef<bool(double)> right,
                                            const std::string& wanted) {
  const JsonValue* value = InFile(path);
  if (value == nullptr || value->kind != Kind::kList) return std::nullopt;
  if (value->items.size() != size) {
    if (index == 0) Wrong(path, Shown(*value), absl::StrCat("a list of ", size, " numbers"));
    return std::nullopt;
  }
  const JsonValue& item = value->items[index];
  const std::string name = absl::StrCat(path, "[", index, "]");
  const std::optional<std::string> text = NumberText(name, item);
  const absl::StatusOr<double> number = NearestDouble(text.value_or(""));
  if (!number.ok() || !right(*number)) {
    problems_.push_back({item.place, absl::StrCat(Spelled(path), "[", index, "] is ", Shown(item),
                                                  "; it must be ", wanted)});
    return std::nullopt;
  }
  return *number;
}

void DeepSpeedValues::RefuseUnread(const std::string& section, const std::string& owner) {
  for (const auto& [path, entry] : entries_) {
    const DeepSpeedKey& key = *FindDeepSpeedKey(path);
    if (SectionOf(path) != section || key.fate != KeyFate::kHonoured ||
        key.kind == KeyKind::kSection || read_.count(path) != 0) {
      continue;
    }
    Problem(path, absl::StrCat(entry.written, " is no parameter of ", owner));
  }
}

void DeepSpeedValues::Problem(const std::string& path, const std::string& text) {
  const JsonValue* value = Find(path);
  problems_.push_back({value == nullptr ? TextPlace{0, 0} : value->place, text});
}

void DeepSpeedValues::Wrong(const std::string& path, const std::string& value,
                            const std::string& wanted) {
  Problem(path, absl::StrCat(Spelled(path), " is ", value, "; it must be ", wanted));
}

void DeepSpeedValues::WrongGiven(const std::string& path, const std::string& wanted) {
  const CallerValue& given = *Given(path);
  Problem(path, absl::StrCat(given.name, " is ", ToJson(given), "; it must be ", wanted));
}

}  // namespace zero
