#include "tests/repository/document.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "tests/repository/source_tree.h"

namespace zero::repository {
namespace {

bool StartsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

bool IsProgramName(const std::string& text) {
  return text.size() > 5 && text.compare(text.size() - 5, 5, "_test") == 0 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
         });
}

bool PathExists(const std::string& root, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.find('*') == std::string::npos) {
    const fs::path whole = fs::path(root) / path;
    return path.back() == '/' ? fs::is_directory(whole) : fs::exists(whole);
  }
  const auto matches = [&](const std::string& file) {
    return fnmatch(path.c_str(), file.c_str(), FNM_PATHNAME) == 0;
  };
  return !ReadTree(root, TopFolder(path), matches).empty();
}

// `name` without the spaces after its first colon.
std::string WithoutGap(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return name;
  const size_t rest = std::min(name.find_first_not_of(' ', colon + 1), name.size());
  return name.substr(0, colon + 1) + name.substr(rest);
}

}  // namespace

std::vector<Span> CodeSpans(const std::vector<std::string>& lines) {
  std::vector<Span> spans;
  bool fenced = false;
  bool open = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t first = lines[i].find_first_not_of(' ');
    if (first == std::string::npos) {
      open = false;  // a paragraph ends what was not closed
      continue;
    }
    if (StartsWith(lines[i].substr(first), "```")) {
      fenced = !fenced;
      continue;
    }
    if (fenced) continue;
    if (open) spans.back().text += ' ';
    for (char c : lines[i].substr(first)) {
      if (c == '`') {
        open = !open;
        if (open) spans.push_back({i + 1, ""});
      } else if (open) {
        spans.back().text += c;
      }
    }
  }
  return spans;
}

std::string PathIn(const std::string& span) {
  const std::string word = span.substr(0, span.find(' '));
  std::vector<std::string> folders = SourceFolders();
  folders.insert(folders.end(), {"scripts", "cmake", "docs", ".ci"});
  const bool known = std::find(folders.begin(), folders.end(), TopFolder(word)) != folders.end();
  return known ? word : "";
}

std::string TestIn(const std::string& span) {
  const size_t colon = span.find(": ");
  if (colon == std::string::npos || !IsProgramName(span.substr(0, colon))) return "";
  return WithoutGap(span);
}

std::vector<std::string> FindMissing(const std::string& name, const std::vector<Span>& spans,
                                     const std::string& root,
                                     const std::vector<std::string>& tests) {
  std::vector<std::string> known;
  for (const std::string& test : tests) known.push_back(WithoutGap(test));
  std::sort(known.begin(), known.end());
  std::vector<std::string> findings;
  for (const Span& span : spans) {
    const std::string path = PathIn(span.text);
    const std::string test = TestIn(span.text);
    const std::string place = name + ":" + std::to_string(span.line) + ": `" + span.text + "` ";
    if (!path.empty() && !PathExists(root, path)) {
      findings.push_back(place + "is no path of the project");
    }
    if (!test.empty() && !std::binary_search(known.begin(), known.end(), test)) {
      findings.push_back(place + "is no test that ctest -N lists");
    }
  }
  return findings;
}

}  // namespace zero::repository
