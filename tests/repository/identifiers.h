// The identifiers of a line of code and what stands round them.
#pragma once

#include <cctype>
#include <string>
#include <vector>

namespace zero::repository {

struct Identifier {
  std::string name;
  std::string scope;    // "std::" before it; empty without a qualifier
  bool member = false;  // after "." or "->"
  bool called = false;  // before "("
};

inline std::vector<Identifier> IdentifiersOf(const std::string& line) {
  const auto in_word = [&](size_t i) {
    return i < line.size() &&
           (std::isalnum(static_cast<unsigned char>(line[i])) != 0 || line[i] == '_');
  };
  std::vector<Identifier> found;
  for (size_t begin = 0; begin < line.size();) {
    if (!in_word(begin)) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (in_word(end)) ++end;
    Identifier identifier;
    identifier.name = line.substr(begin, end - begin);
    const auto before = [&](const char* text, size_t n) {
      return begin >= n && line.compare(begin - n, n, text) == 0;
    };
    identifier.member = before(".", 1) || before("->", 2);
    if (before("::", 2)) identifier.scope = found.empty() ? "::" : found.back().name + "::";
    size_t next = end;
    while (next < line.size() && line[next] == ' ') ++next;
    identifier.called = next < line.size() && line[next] == '(';
    found.push_back(identifier);
    begin = end;
  }
  return found;
}

}  // namespace zero::repository
