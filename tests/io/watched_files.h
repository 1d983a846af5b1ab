// Files() that notes its calls and fails one of them; in force while it lives.
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "io/file_calls.h"

class WatchedFiles : public zero::FileCalls {
 public:
  WatchedFiles() : before_(zero::ReplaceFileCalls(this)) {}
  ~WatchedFiles() override { zero::ReplaceFileCalls(before_); }

  // The `nth` call of a kind from now on, counted from 1, fails with `error` and does nothing.
  void Fail(const std::string& kind, int nth, int error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_kind_ = kind;
    fail_in_ = nth;
    fail_error_ = error;
  }

  // Since the last time, one "<kind> <name>" each; a temporary file is called "*". Reads are left
  // out, and so are files that are opened to be read.
  std::vector<std::string> Calls() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::move(calls_);
  }

  int Open(const char* path, int flags, mode_t mode) override {
    const bool changes = (flags & O_ACCMODE) != O_RDONLY;
    const std::string kind = (flags & O_CREAT) != 0 ? "create" : changes ? "open" : "read";
    if (!Goes(kind, path)) return -1;
    const int descriptor = FileCalls::Open(path, flags, mode);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (descriptor >= 0) paths_[descriptor] = path;
    return descriptor;
  }
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    return Goes("write", descriptor) ? FileCalls::Pwrite(descriptor, bytes, count, offset) : -1;
  }
  int Fsync(int descriptor) override {
    return Goes("fsync", descriptor) ? FileCalls::Fsync(descriptor) : -1;
  }
  int Truncate(int descriptor, off_t bytes) override {
    return Goes("truncate", descriptor) ? FileCalls::Truncate(descriptor, bytes) : -1;
  }
  int Lock(int descriptor) override {
    return Goes("lock", descriptor) ? FileCalls::Lock(descriptor) : -1;
  }
  int Rename(const char* from, const char* to) override {
    return Goes("rename", to) ? FileCalls::Rename(from, to) : -1;
  }
  int MakeFolder(const char* path, mode_t mode) override {
    return Goes("mkdir", path) ? FileCalls::MakeFolder(path, mode) : -1;
  }
  int Unlink(const char* path) override {
    return Goes("unlink", path) ? FileCalls::Unlink(path) : -1;
  }
  int RemoveFolder(const char* path) override {
    return Goes("rmdir", path) ? FileCalls::RemoveFolder(path) : -1;
  }

 private:
  bool Goes(const std::string& kind, int descriptor) {
    std::string path;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      path = paths_[descriptor];
    }
    return Goes(kind, path);
  }

  bool Goes(const std::string& kind, const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kind == fail_kind_ && --fail_in_ == 0) {
      fail_kind_ = "";
      errno = fail_error_;
      return false;
    }
    std::string name = std::filesystem::path(path).filename().string();
    if (std::filesystem::path(name).extension() == ".tmp") name = "*";
    if (kind != "read") calls_.push_back(kind + " " + name);
    return true;
  }

  zero::FileCalls* const before_;
  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::map<int, std::string> paths_;
  std::string fail_kind_;
  int fail_in_ = 0;
  int fail_error_ = 0;
};
