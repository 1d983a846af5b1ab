#include "tests/repository/forbidden.h"

#include <algorithm>
#include <set>

#include "tests/repository/identifiers.h"
#include "tests/repository/source_tree.h"

namespace zero::repository {
namespace {

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool IsBuildFileOrCode(const std::string& path) {
  return IsCode(path) || EndsWith(path, "CMakeLists.txt") || EndsWith(path, ".cmake") ||
         EndsWith(path, ".json") || EndsWith(path, ".sh") || TopFolder(path) == ".ci" ||
         TopFolder(path) == "scripts";
}

bool Ends(const Identifier& identifier) {
  static const std::set<std::string> names = {
      "exit",    "_exit",    "_Exit", "quick_exit", "abort",   "terminate", "printf", "fprintf",
      "vprintf", "vfprintf", "puts",  "fputs",      "putchar", "perror",    "assert"};
  return identifier.called && !identifier.member && names.count(identifier.name) != 0;
}

bool Prints(const Identifier& identifier) {
  static const std::set<std::string> names = {"cout", "cerr", "clog"};
  return identifier.scope == "std::" && names.count(identifier.name) != 0;
}

}  // namespace

std::vector<std::string> FindNativeBuilds(const std::string& root) {
  const std::string flag = std::string("-march=") + "native";
  std::vector<std::string> findings;
  for (const SourceFile& file : ReadTree(root, "", IsBuildFileOrCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (file.lines[i].find(flag) != std::string::npos) findings.push_back(At(file, i, flag));
    }
  }
  return findings;
}

std::vector<std::string> FindUnfinishedMarks(const std::string& root) {
  std::vector<std::string> findings;
  for (const std::string& floor : Floors()) {
    for (const SourceFile& file : ReadTree(root, floor, [](const std::string&) { return true; })) {
      for (size_t i = 0; i < file.lines.size(); ++i) {
        for (const Identifier& identifier : IdentifiersOf(file.lines[i])) {
          if (identifier.name == "TODO" || identifier.name == "FIXME") {
            findings.push_back(At(file, i, identifier.name));
          }
        }
      }
    }
  }
  return findings;
}

std::vector<std::string> FindExitsAndPrints(const std::string& root) {
  std::vector<std::string> findings;
  for (const std::string& floor : Floors()) {
    for (const SourceFile& file : ReadTree(root, floor, IsCode)) {
      const std::vector<std::string> code = StripComments(file.lines, false);
      for (size_t i = 0; i < code.size(); ++i) {
        for (const Identifier& identifier : IdentifiersOf(code[i])) {
          if (Ends(identifier) || Prints(identifier)) {
            findings.push_back(At(file, i, identifier.name));
          }
        }
      }
    }
  }
  return findings;
}

std::vector<std::string> FindPrivateIncludes(const std::string& root,
                                             const std::vector<std::string>& public_headers) {
  const std::set<std::string> known(public_headers.begin(), public_headers.end());
  std::vector<std::string> findings;
  for (const std::string& floor : Floors()) {
    for (const SourceFile& file :
         ReadTree(root, floor, [&](const std::string& path) { return known.count(path) != 0; })) {
      const std::vector<std::string> code = StripComments(file.lines, true);
      for (size_t i = 0; i < code.size(); ++i) {
        if (code[i].compare(0, 10, "#include \"") != 0) continue;
        const std::string included = code[i].substr(10, code[i].find('"', 10) - 10);
        const std::string folder = TopFolder(included);
        if (std::count(Floors().begin(), Floors().end(), folder) != 0 &&
            known.count(included) == 0) {
          findings.push_back(
              At(file, i, "a public header includes " + included + ", which is not installed"));
        }
      }
    }
  }
  return findings;
}

}  // namespace zero::repository
