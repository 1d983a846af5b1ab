// The folder that a trained model goes to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero::train {

// Makes sure before a long run that files can be written to a folder, and leaves no trace if none
// is: folders that it made are removed again while they are empty.
class OutputFolder {
 public:
  // Makes the folder and those above it where they are missing and tries to write there. An empty
  // path: no output is wanted. kInvalidArgument names the path and what is wrong with it.
  static absl::StatusOr<OutputFolder> Prepare(const std::string& path);
  OutputFolder(OutputFolder&&) = default;
  OutputFolder& operator=(OutputFolder&&) = default;
  ~OutputFolder();

  const std::string& path() const { return path_; }
  // The folders that were made, innermost first.
  std::vector<std::string> made() const;

 private:
  explicit OutputFolder(std::string path) : path_(std::move(path)) {}
  absl::Status MakeFolders();
  absl::Status TryToWrite() const;

  std::string path_;
  std::vector<std::filesystem::path> made_;  // innermost last
};

}  // namespace zero::train
