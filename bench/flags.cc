#include "bench/flags.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/status.h"

namespace zero::bench {

void Flags::Add(const std::string& name, int64_t* value, int64_t minimum,
                const std::string& meaning) {
  flags_.push_back({"--" + name, value, nullptr, minimum, meaning, absl::StrCat(*value)});
}

void Flags::Add(const std::string& name, std::string* value, const std::string& meaning) {
  flags_.push_back({"--" + name, nullptr, value, 0, meaning, *value});
}

absl::Status Flags::Set(const Flag& flag, const std::string& value) {
  if (flag.text != nullptr) {
    *flag.text = value;
    return absl::OkStatus();
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(value, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(flag.name, ": '", value, "' is not a number"));
  }
  if (number < flag.minimum) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag.name, ": ", number, " is below ", flag.minimum));
  }
  *flag.number = number;
  return absl::OkStatus();
}

absl::Status Flags::Parse(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") {
      help_ = true;
      continue;
    }
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const auto flag = std::find_if(flags_.begin(), flags_.end(),
                                   [&](const Flag& candidate) { return candidate.name == name; });
    if (flag == flags_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag '", arguments[i], "'"));
    }
    if (equals != std::string::npos) {
      ZERO_RETURN_IF_ERROR(Set(*flag, arguments[i].substr(equals + 1)));
    } else if (i + 1 < arguments.size()) {
      ZERO_RETURN_IF_ERROR(Set(*flag, arguments[++i]));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    }
  }
  return absl::OkStatus();
}

std::string Flags::Describe() const {
  std::string text;
  for (const Flag& flag : flags_) {
    const std::string value = flag.number != nullptr ? " N" : " NAME";
    absl::StrAppendFormat(&text, "  %-18s %s", flag.name + value, flag.meaning);
    if (!flag.initial.empty()) absl::StrAppend(&text, " (", flag.initial, ")");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace zero::bench
