#include "zero/deepspeed_resolved.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "io/relaxed_json.h"
#include "zero/deepspeed_keys.h"

namespace zero {

std::string NestedJson(const std::map<std::string, std::string>& values) {
  std::string text = "{";
  std::vector<std::string> open;  // sections
  bool first = true;
  const auto new_line = [&] {
    absl::StrAppend(&text, first ? "" : ",", "\n", std::string(2 * (open.size() + 1), ' '));
    first = false;
  };
  const auto close = [&] {
    open.pop_back();
    absl::StrAppend(&text, "\n", std::string(2 * (open.size() + 1), ' '), "}");
    first = false;
  };
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    const auto found = values.find(key.path);
    if (found == values.end()) continue;
    std::vector<std::string> sections;
    std::string section = SectionOf(key.path);
    for (; !section.empty(); section = SectionOf(section)) {
      sections.insert(sections.begin(), section);
    }
    while (!open.empty() &&
           (open.size() > sections.size() || open.back() != sections[open.size() - 1])) {
      close();
    }
    while (open.size() < sections.size()) {
      new_line();
      absl::StrAppend(&text, Quoted(LastName(sections[open.size()])), ": {");
      open.push_back(sections[open.size()]);
      first = true;
    }
    new_line();
    absl::StrAppend(&text, Quoted(LastName(key.path)), ": ", found->second);
  }
  while (!open.empty()) close();
  return text + "\n}";
}

}  // namespace zero
