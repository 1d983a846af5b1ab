// The system calls of a save, counted: one of them can end the process, or fail.
#pragma once

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <mutex>
#include <string>

#include "io/file_calls.h"

namespace zero::test {

// In force from its making to its end. Counts, from Arm on, the calls that change something: those
// that make, write, sync, resize, rename or remove. Does `at` before the n-th (from 1).
class WatchedFiles : public FileCalls {
 public:
  // What becomes of a call: 0: it is made; an errno: it fails; kShort: a write writes half.
  static constexpr int kShort = -1;
  using Action = std::function<int(int64_t call, const char* what, const std::string& path)>;

  explicit WatchedFiles(Action action = nullptr)
      : action_(std::move(action)), before_(ReplaceFileCalls(this)) {}
  ~WatchedFiles() override { ReplaceFileCalls(before_); }

  void Arm() { armed_ = true; }
  void Disarm() { armed_ = false; }
  int64_t calls() const { return calls_; }

  int Open(const char* path, int flags, mode_t mode) override;
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override;
  int Fsync(int descriptor) override;
  int Truncate(int descriptor, off_t bytes) override;
  int Rename(const char* from, const char* to) override;
  int MakeFolder(const char* path, mode_t mode) override;
  int Unlink(const char* path) override;
  int RemoveFolder(const char* path) override;

 private:
  // What becomes of the next call.
  int Next(const char* what, const std::string& path);

  const Action action_;
  FileCalls* const before_;
  std::atomic<bool> armed_{false};
  std::atomic<int64_t> calls_{0};
};

// Ends the process, and all its ranks, at call `n`.
inline WatchedFiles::Action KillAt(int64_t n) {
  return [n](int64_t call, const char*, const std::string&) {
    if (call == n) raise(SIGKILL);
    return 0;
  };
}

// The path that a descriptor is open on.
std::string PathOf(int descriptor);

}  // namespace zero::test
