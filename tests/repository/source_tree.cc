#include "tests/repository/source_tree.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

namespace zero::repository {
namespace {

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool Skipped(const std::string& folder) {
  return (folder[0] == '.' && folder != ".ci") || folder == "build" || folder == "out";
}

std::vector<std::string> ReadLines(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Walks over code one character at a time, over the borders of lines.
class Stripper {
 public:
  explicit Stripper(bool keep_literals) : keep_literals_(keep_literals) {}

  std::string Line(const std::string& line) {
    std::string kept;
    for (size_t i = 0; i < line.size(); ++i) Step(line, i, kept);
    if (state_ == State::kString || state_ == State::kCharacter) state_ = State::kCode;
    return kept;
  }

 private:
  enum class State { kCode, kString, kCharacter, kRaw, kBlock };

  void Step(const std::string& line, size_t& i, std::string& kept) {
    const char c = line[i];
    switch (state_) {
      case State::kCode:
        return Code(line, i, kept);
      case State::kBlock:
        if (c == '*' && line.compare(i, 2, "*/") == 0) {
          ++i;
          state_ = State::kCode;
        }
        return;
      case State::kRaw:
        if (line.compare(i, raw_end_.size(), raw_end_) == 0) {
          kept += raw_end_;
          i += raw_end_.size() - 1;
          state_ = State::kCode;
        } else if (keep_literals_) {
          kept += c;
        }
        return;
      default:
        if (c == '\\') {
          if (keep_literals_) kept += line.substr(i, 2);
          ++i;
        } else if (c == (state_ == State::kString ? '"' : '\'')) {
          kept += c;
          state_ = State::kCode;
        } else if (keep_literals_) {
          kept += c;
        }
    }
  }

  void Code(const std::string& line, size_t& i, std::string& kept) {
    const char c = line[i];
    if (line.compare(i, 2, "//") == 0) {
      i = line.size();
    } else if (line.compare(i, 2, "/*") == 0) {
      ++i;
      kept += ' ';
      state_ = State::kBlock;
    } else if (c == '"' && i > 0 && line[i - 1] == 'R') {
      const size_t open = std::min(line.find('(', i), line.size());
      raw_end_ = ')';
      raw_end_.append(line, i + 1, open - i - 1);
      raw_end_ += '"';
      kept += line.substr(i, open - i + 1);
      i = open;
      state_ = State::kRaw;
    } else {
      kept += c;
      if (c == '"') state_ = State::kString;
      // 1'000 is a number, not a character.
      if (c == '\'' && (i == 0 || std::isalnum(static_cast<unsigned char>(line[i - 1])) == 0)) {
        state_ = State::kCharacter;
      }
    }
  }

  const bool keep_literals_;
  State state_ = State::kCode;
  std::string raw_end_;
};

}  // namespace

const std::vector<std::string>& Floors() {
  static const std::vector<std::string> floors = {"device",      "kernels", "io",
                                                  "collectives", "offload", "zero"};
  return floors;
}

const std::vector<std::string>& SourceFolders() {
  static const std::vector<std::string> folders = {"device",  "kernels", "io",       "collectives",
                                                   "offload", "zero",    "examples", "bench",
                                                   "tools",   "tests"};
  return folders;
}

std::vector<SourceFile> ReadTree(const std::string& root, const std::string& folder,
                                 const std::function<bool(const std::string&)>& keep) {
  namespace fs = std::filesystem;
  std::vector<SourceFile> files;
  const fs::path start = fs::path(root) / folder;
  if (!fs::exists(start)) return files;
  for (auto entry = fs::recursive_directory_iterator(start); entry != fs::end(entry); ++entry) {
    if (entry->is_directory() && Skipped(entry->path().filename().string())) {
      entry.disable_recursion_pending();
    }
    const std::string path = entry->path().lexically_relative(root).generic_string();
    if (entry->is_regular_file() && keep(path)) files.push_back({path, ReadLines(entry->path())});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

bool IsCode(const std::string& path) {
  return EndsWith(path, ".h") || EndsWith(path, ".cc") || IsCuda(path);
}

bool IsCuda(const std::string& path) { return EndsWith(path, ".cu") || EndsWith(path, ".cuh"); }

std::string TopFolder(const std::string& path) {
  const size_t slash = path.find('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::vector<std::string> StripComments(const std::vector<std::string>& lines, bool keep_literals) {
  Stripper stripper(keep_literals);
  std::vector<std::string> stripped;
  for (const std::string& line : lines) stripped.push_back(stripper.Line(line));
  return stripped;
}

std::string At(const SourceFile& file, size_t line, const std::string& message) {
  return file.path + ":" + std::to_string(line + 1) + ": " + message;
}

std::string Joined(const std::vector<std::string>& findings) {
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  return text;
}

}  // namespace zero::repository
