// Files() that notes its calls and fails one of them.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "tests/io/gated_files.h"

class WatchedFiles : public GatedFiles {
 public:
  WatchedFiles() : GatedFiles([this](const FileCall& call) { return Note(call); }) {}

  // The `nth` call of a kind from now on, counted from 1, fails with `error` and does nothing.
  void Fail(const std::string& kind, int nth, int error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_kind_ = kind;
    fail_in_ = nth;
    fail_error_ = error;
  }

  // Since the last time, one "<kind> <name>" each; a temporary file is called "*". Files that are
  // opened to be read are left out.
  std::vector<std::string> Calls() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::move(noted_);
  }

 private:
  int Note(const FileCall& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (call.kind == fail_kind_ && --fail_in_ == 0) {
      fail_kind_ = "";
      return fail_error_;
    }
    if (call.kind == "read") return kGoes;
    const std::filesystem::path path = call.path;
    const std::string name = path.extension() == ".tmp" ? "*" : path.filename().string();
    noted_.push_back(call.kind + " " + name);
    return kGoes;
  }

  std::mutex mutex_;
  std::vector<std::string> noted_;
  std::string fail_kind_;
  int fail_in_ = 0;
  int fail_error_ = 0;
};
