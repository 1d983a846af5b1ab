#include "examples/support/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "zero/nearest_name.h"

namespace zero::support {
namespace {

absl::Status WrongValue(const std::string& name, const std::string& value,
                        const std::string& right) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is '", value, "'; it must be ", right));
}

absl::Status SetSwitch(const std::string& name, bool* on, const std::string& value) {
  if (value != "true" && value != "false") return WrongValue(name, value, "true or false");
  *on = value == "true";
  return absl::OkStatus();
}

struct SizeUnit {
  const char* name;
  int64_t bytes;
};
// The larger first; of one size the one that is written.
constexpr SizeUnit kSizeUnits[] = {{"TiB", int64_t{1} << 40},
                                   {"T", int64_t{1} << 40},
                                   {"TB", 1'000'000'000'000},
                                   {"GiB", 1 << 30},
                                   {"G", 1 << 30},
                                   {"GB", 1'000'000'000},
                                   {"MiB", 1 << 20},
                                   {"M", 1 << 20},
                                   {"MB", 1'000'000},
                                   {"KiB", 1 << 10},
                                   {"K", 1 << 10},
                                   {"KB", 1'000},
                                   {"", 1},
                                   {"B", 1}};

}  // namespace

absl::StatusOr<int64_t> ParseSize(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  for (const SizeUnit& unit : kSizeUnits) {
    int64_t count = 0;
    if (!absl::EqualsIgnoreCase(text.substr(digits), unit.name) ||
        !absl::SimpleAtoi(text.substr(0, digits), &count) ||
        count > std::numeric_limits<int64_t>::max() / unit.bytes) {
      continue;
    }
    return count * unit.bytes;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no number of bytes"));
}

std::string SizeText(int64_t bytes) {
  const auto* const unit =
      std::find_if(std::begin(kSizeUnits), std::end(kSizeUnits), [&](const SizeUnit& candidate) {
        return candidate.bytes == 1 || (bytes > 0 && bytes % candidate.bytes == 0);
      });
  return absl::StrCat(bytes / unit->bytes, unit->name);
}

std::string ShortestNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

void FlagTable::AddCount(const std::string& name, int64_t* value, int64_t least, int64_t most,
                         const std::string& meaning) {
  const std::string flag = "--" + name;
  flags_.push_back(
      {flag, "N", meaning, absl::StrCat(*value), nullptr, false,
       [=](const std::string& text) -> absl::Status {
         int64_t number = 0;
         // SimpleAtoi skips spaces around the number.
         const bool plain = text.find_first_of(" \t\r\n\v\f") == std::string::npos;
         if (!plain || !absl::SimpleAtoi(text, &number) || number < least || number > most) {
           return WrongValue(flag, text, absl::StrCat("a whole number from ", least, " to ", most));
         }
         *value = number;
         return absl::OkStatus();
       }});
}

void FlagTable::AddNumber(const std::string& name, double* value, double least, double most,
                          const std::string& meaning) {
  const std::string flag = "--" + name;
  flags_.push_back({flag, "X", meaning, ShortestNumber(*value), nullptr, false,
                    [=](const std::string& text) -> absl::Status {
                      double number = 0;
                      const bool plain = text.find_first_of(" \t\r\n\v\f") == std::string::npos;
                      if (!plain || !absl::SimpleAtod(text, &number) || !(number >= least) ||
                          !(number <= most)) {
                        return WrongValue(flag, text,
                                          absl::StrCat("a number from ", ShortestNumber(least),
                                                       " to ", ShortestNumber(most)));
                      }
                      *value = number;
                      return absl::OkStatus();
                    }});
}

void FlagTable::AddSize(const std::string& name, int64_t* value, int64_t least,
                        const std::string& meaning) {
  const std::string flag = "--" + name;
  flags_.push_back({flag, "SIZE", meaning, SizeText(*value), nullptr, false,
                    [=](const std::string& text) -> absl::Status {
                      const absl::StatusOr<int64_t> bytes = ParseSize(text);
                      if (!bytes.ok() || *bytes < least) {
                        return WrongValue(flag, text,
                                          absl::StrCat("a number of bytes from ", SizeText(least),
                                                       " on, as 512MB or 2GiB"));
                      }
                      *value = *bytes;
                      return absl::OkStatus();
                    }});
}

void FlagTable::AddChoice(const std::string& name, std::string* value,
                          const std::vector<std::string>& choices, const std::string& meaning,
                          const std::string& reason) {
  const std::string flag = "--" + name;
  flags_.push_back({flag, absl::StrJoin(choices, "|"), meaning, *value, nullptr, false,
                    [=](const std::string& text) -> absl::Status {
                      if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
                        return WrongValue(flag, text, absl::StrJoin(choices, " or ") + reason);
                      }
                      *value = text;
                      return absl::OkStatus();
                    }});
}

void FlagTable::AddText(const std::string& name, std::string* value, const std::string& kind,
                        const std::string& meaning) {
  const std::string flag = "--" + name;
  flags_.push_back({flag, kind, meaning, *value, nullptr, false, [=](const std::string& text) {
                      *value = text;
                      return absl::OkStatus();
                    }});
}

void FlagTable::AddList(const std::string& name, std::string* value, const std::string& kind,
                        const std::string& meaning) {
  const std::string flag = "--" + name;
  flags_.push_back({flag, kind, meaning, *value, nullptr, true, [=](const std::string& text) {
                      absl::StrAppend(value, value->empty() ? "" : ",", text);
                      return absl::OkStatus();
                    }});
}

void FlagTable::AddSwitch(const std::string& name, bool* value, const std::string& meaning) {
  const std::string flag = "--" + name;
  flags_.push_back({flag, "true|false", meaning, *value ? "true" : "false", value, false,
                    [=](const std::string& text) { return SetSwitch(flag, value, text); }});
}

const FlagTable::Flag* FlagTable::Find(const std::string& name) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [&](const Flag& flag) { return flag.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

std::string FlagTable::Nearest(const std::string& name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  return NearestName(name, names);
}

absl::Status FlagTable::Set(const Flag& flag, const std::string& value) {
  ZERO_RETURN_IF_ERROR(flag.set(value));
  const auto [before, first] = given_.emplace(flag.name, value);
  if (first || flag.repeats) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag.name, " is given twice, as '", before->second,
                                                 "' and as '", value, "'; keep one"));
}

absl::Status FlagTable::Parse(const std::vector<std::string>& arguments) {
  const auto is_flag = [](const std::string& text) { return absl::StartsWith(text, "--"); };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (argument == "--help" || argument == "-h") {
      help_ = true;
      continue;
    }
    if (!is_flag(argument)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", argument, "' is no flag; flags begin with --, see --help"));
    }
    const Flag* flag = Find(name);
    if (flag == nullptr && equals == std::string::npos && absl::StartsWith(name, "--no")) {
      const Flag* positive = Find("--" + name.substr(4));
      if (positive != nullptr && positive->on != nullptr) {
        ZERO_RETURN_IF_ERROR(Set(*positive, "false"));
        continue;
      }
    }
    if (name == "--help") return absl::InvalidArgumentError("--help takes no value");
    if (flag == nullptr) {
      // A name that shares hardly a letter helps nobody.
      const std::string nearest = Nearest(name);
      const bool near = 2 * EditDistance(name, nearest) < name.size() - 2;
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag '", name, near ? "'; the nearest is " + nearest : "'; see --help"));
    }
    const bool value_follows = i + 1 < arguments.size() && !is_flag(arguments[i + 1]);
    if (equals != std::string::npos) {
      ZERO_RETURN_IF_ERROR(Set(*flag, argument.substr(equals + 1)));
    } else if (value_follows) {
      ZERO_RETURN_IF_ERROR(Set(*flag, arguments[++i]));
    } else if (flag->on != nullptr) {
      ZERO_RETURN_IF_ERROR(Set(*flag, "true"));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " needs a value: ", name, " ", flag->kind));
    }
  }
  return absl::OkStatus();
}

std::string FlagTable::Help() const {
  std::vector<std::string> heads;
  size_t width = std::string("--help").size();
  for (const Flag& flag : flags_) {
    heads.push_back(flag.name + " " + flag.kind);
    width = std::max(width, heads.back().size());
  }
  std::string text;
  const auto line = [&](const std::string& head, const std::string& meaning) {
    absl::StrAppend(&text, "  ", head, std::string(width + 2 - head.size(), ' '), meaning, "\n");
  };
  for (size_t i = 0; i < flags_.size(); ++i) {
    const Flag& flag = flags_[i];
    line(heads[i], flag.meaning + (flag.initial.empty() ? "" : " (" + flag.initial + ")"));
  }
  line("--help", "print this");
  return text;
}

}  // namespace zero::support
