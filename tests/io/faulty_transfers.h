// Files() that changes what transfers do, whichever way they go; in force while it lives.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <mutex>

#include "tests/io/replaced_files.h"

class FaultyTransfers : public ReplacedFiles {
 public:
  // Called before each transfer, one at a time: returns an errno that it ends with, or 0, and may
  // lower its bytes.
  std::function<int(bool writes, size_t* bytes, off_t offset)> transfer;
  // The errno of an opening with O_DIRECT; 0: none.
  int refuses_direct = 0;
  // The errno of setting room aside, after which part of it is taken; 0: none.
  int refuses_room = 0;

  int Open(const char* path, int flags, mode_t mode) override {
    if (refuses_direct != 0 && (flags & O_DIRECT) != 0) {
      errno = refuses_direct;
      return -1;
    }
    return FileCalls::Open(path, flags, mode);
  }
  int Allocate(int descriptor, off_t bytes) override {
    if (refuses_room == 0) return FileCalls::Allocate(descriptor, bytes);
    FileCalls::Allocate(descriptor, bytes / 2);
    errno = refuses_room;
    return -1;
  }
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    return Goes(true, &count, offset) ? FileCalls::Pwrite(descriptor, bytes, count, offset) : -1;
  }
  ssize_t Pread(int descriptor, void* bytes, size_t count, off_t offset) override {
    return Goes(false, &count, offset) ? FileCalls::Pread(descriptor, bytes, count, offset) : -1;
  }
  int Admit(bool writes, int /*descriptor*/, size_t* count, off_t offset) override {
    return Goes(writes, count, offset) ? 0 : errno;
  }

 private:
  bool Goes(bool writes, size_t* count, off_t offset) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int error = transfer ? transfer(writes, count, offset) : 0;
    if (error != 0) errno = error;
    return error == 0;
  }

  std::mutex mutex_;
};
