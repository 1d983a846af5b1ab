// File calls that end, as those of a process that is killed.
#pragma once

#include <cerrno>

#include "io/file_calls.h"

namespace zero::test {

// Lets so many calls that change something through. The next one fails, and so do all later ones,
// as if the process had ended there; or, with `once`, only that one does. In force while it lives.
class EndAfter : public FileCalls {
 public:
  explicit EndAfter(int calls, bool once = false) : left_(calls), once_(once) {
    ReplaceFileCalls(this);
  }
  ~EndAfter() override { ReplaceFileCalls(nullptr); }

  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    return Ends() ? -1 : FileCalls::Pwrite(descriptor, bytes, count, offset);
  }
  int Fsync(int descriptor) override { return Ends() ? -1 : FileCalls::Fsync(descriptor); }
  int Rename(const char* from, const char* to) override {
    return Ends() ? -1 : FileCalls::Rename(from, to);
  }
  int MakeFolder(const char* path, mode_t mode) override {
    return Ends() ? -1 : FileCalls::MakeFolder(path, mode);
  }
  int Unlink(const char* path) override { return Ends() ? -1 : FileCalls::Unlink(path); }
  int RemoveFolder(const char* path) override {
    return Ends() ? -1 : FileCalls::RemoveFolder(path);
  }
  // Whether a call has failed.
  bool ended() const { return ended_; }

 private:
  bool Ends() {
    if (left_ > 0) {
      --left_;
      return false;
    }
    if (ended_ && once_) return false;
    ended_ = true;
    errno = EIO;
    return true;
  }

  int left_;
  const bool once_;
  bool ended_ = false;
};

}  // namespace zero::test
