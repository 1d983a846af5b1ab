#include "tests/repository/include_rules.h"

#include <algorithm>
#include <cctype>

#include "tests/repository/identifiers.h"
#include "tests/repository/source_tree.h"

namespace zero::repository {
namespace {

// What a line includes, by quotes or angle brackets; empty if it includes nothing.
std::string IncludedPath(const std::string& line) {
  size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos || line[at] != '#') return "";
  at = line.find_first_not_of(" \t", at + 1);
  if (at == std::string::npos || line.compare(at, 7, "include") != 0) return "";
  at = line.find_first_of("\"<", at);
  if (at == std::string::npos) return "";
  const size_t end = line.find(line[at] == '<' ? '>' : '"', at + 1);
  return end == std::string::npos ? "" : line.substr(at + 1, end - at - 1);
}

// The place of a folder from the ground up; -1: none of ours.
int HeightOf(const std::string& folder) {
  const std::vector<std::string>& folders = SourceFolders();
  const auto found = std::find(folders.begin(), folders.end(), folder);
  return found == folders.end() ? -1 : static_cast<int>(found - folders.begin());
}

bool StartsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// "cudaMalloc" is of the family "cuda", "cudable" is not.
bool OfFamily(const std::string& name, const std::string& family) {
  return StartsWith(name, family) && name.size() > family.size() &&
         std::isupper(static_cast<unsigned char>(name[family.size()])) != 0;
}

bool NamesCuda(const std::string& line) {
  const std::string included = IncludedPath(line);
  if (StartsWith(included, "cuda")) return true;
  if (!included.empty()) return false;
  for (const Identifier& identifier : IdentifiersOf(line)) {
    if (OfFamily(identifier.name, "cuda")) return true;
  }
  return false;
}

bool NamesCublas(const std::string& line) { return StartsWith(IncludedPath(line), "cublas"); }

bool NamesCollectives(const std::string& line) {
  const std::string included = IncludedPath(line);
  if (StartsWith(included, "nccl") || StartsWith(included, "gloo/")) return true;
  if (!included.empty()) return false;
  for (const Identifier& identifier : IdentifiersOf(line)) {
    if (OfFamily(identifier.name, "nccl") || identifier.scope == "gloo::") return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> FindUpwardIncludes(const std::string& root) {
  std::vector<std::string> findings;
  for (const std::string& folder : SourceFolders()) {
    for (const SourceFile& file : ReadTree(root, folder, IsCode)) {
      const std::vector<std::string> code = StripComments(file.lines, true);
      for (size_t i = 0; i < code.size(); ++i) {
        const std::string included = IncludedPath(code[i]);
        if (included.find("../") != std::string::npos) {
          findings.push_back(At(file, i, "includes " + included + ": write it from the root"));
        }
        const std::string other = TopFolder(included);
        const int height = HeightOf(other);
        if (height < 0 || other == folder || height < HeightOf(folder)) continue;
        findings.push_back(
            At(file, i, folder + " includes " + included + ", which is not on a lower floor"));
      }
    }
  }
  return findings;
}

std::vector<std::string> FindVendorNames(const std::string& root) {
  std::vector<std::string> findings;
  for (const std::string& folder : SourceFolders()) {
    if (folder == "tests") continue;
    for (const SourceFile& file : ReadTree(root, folder, IsCode)) {
      // Includes need their literals, other lines must lose them.
      const std::vector<std::string> code = StripComments(file.lines, false);
      const std::vector<std::string> with_literals = StripComments(file.lines, true);
      for (size_t i = 0; i < code.size(); ++i) {
        const std::string& line =
            IncludedPath(with_literals[i]).empty() ? code[i] : with_literals[i];
        if (folder != "device" && !IsCuda(file.path) && NamesCuda(line)) {
          findings.push_back(At(file, i, "names the CUDA runtime, which only device/ may"));
        }
        if (!StartsWith(file.path, "examples/llama/") && NamesCublas(line)) {
          findings.push_back(At(file, i, "names cuBLASLt, which only examples/llama/ may"));
        }
        if (folder != "collectives" && NamesCollectives(line)) {
          findings.push_back(At(file, i, "names NCCL or Gloo, which only collectives/ may"));
        }
      }
    }
  }
  return findings;
}

}  // namespace zero::repository
