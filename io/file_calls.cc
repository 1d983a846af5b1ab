#include "io/file_calls.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace zero {
namespace {

std::atomic<FileCalls*> replacement{nullptr};

}  // namespace

int FileCalls::Open(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }

ssize_t FileCalls::Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  return pwrite(descriptor, bytes, count, offset);
}

ssize_t FileCalls::Pread(int descriptor, void* bytes, size_t count, off_t offset) {
  return pread(descriptor, bytes, count, offset);
}

int FileCalls::Fsync(int descriptor) { return fsync(descriptor); }

int FileCalls::Bypass(int descriptor, bool on) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0) return -1;
  return fcntl(descriptor, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

int FileCalls::Truncate(int descriptor, off_t bytes) { return ftruncate(descriptor, bytes); }

int FileCalls::Allocate(int descriptor, off_t bytes) { return fallocate(descriptor, 0, 0, bytes); }

int FileCalls::Lock(int descriptor) { return flock(descriptor, LOCK_EX | LOCK_NB); }

int FileCalls::Rename(const char* from, const char* to) { return std::rename(from, to); }

int FileCalls::MakeFolder(const char* path, mode_t mode) { return mkdir(path, mode); }

int FileCalls::Unlink(const char* path) { return unlink(path); }

int FileCalls::RemoveFolder(const char* path) { return rmdir(path); }

int FileCalls::Close(int descriptor) { return close(descriptor); }

int FileCalls::Admit(bool /*writes*/, int /*descriptor*/, size_t* /*count*/, off_t /*offset*/) {
  return 0;
}

FileCalls& Files() {
  static FileCalls system;
  FileCalls* const calls = replacement.load(std::memory_order_acquire);
  return calls == nullptr ? system : *calls;
}

FileCalls* ReplaceFileCalls(FileCalls* calls) {
  return replacement.exchange(calls, std::memory_order_acq_rel);
}

}  // namespace zero
