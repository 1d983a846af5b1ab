// The files of a source tree and their text, for tests about the repository itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace zero::repository {

// The floors from the lowest to the highest.
const std::vector<std::string>& Floors();
// Floors, then what stands on them, tests last.
const std::vector<std::string>& SourceFolders();

struct SourceFile {
  std::string path;                // from the root, with '/'
  std::vector<std::string> lines;  // as written
};

// Regular files below `folder` of `root` ("" is all of it) for which keep(path) holds, sorted.
// Hidden folders (but .ci), build trees and out/ are left out.
std::vector<SourceFile> ReadTree(const std::string& root, const std::string& folder,
                                 const std::function<bool(const std::string&)>& keep);

// .h .cc .cu .cuh
bool IsCode(const std::string& path);
bool IsCuda(const std::string& path);

// The first folder of a path; empty if it has none.
std::string TopFolder(const std::string& path);

// The lines without comments; string and character literals keep their quotes, and their content
// only if `keep_literals`. As many lines as before.
std::vector<std::string> StripComments(const std::vector<std::string>& lines, bool keep_literals);

// "path:line: message"; `line` counts from 0.
std::string At(const SourceFile& file, size_t line, const std::string& message);

// One finding per line, for messages of tests.
std::string Joined(const std::vector<std::string>& findings);

}  // namespace zero::repository
