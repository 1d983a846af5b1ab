// The system calls of files, in one table that tests can replace.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace zero {

// Each as the system call of that name, errno included: Truncate is ftruncate, Allocate
// fallocate from byte 0 on, Lock flock for one holder and at once, MakeFolder mkdir,
// RemoveFolder rmdir, Bypass what fcntl does to O_DIRECT. A derived class counts, fails or records
// calls, or ends the process at one, and passes the others on to these. Called from several
// threads.
class FileCalls {
 public:
  virtual ~FileCalls() = default;

  virtual int Open(const char* path, int flags, mode_t mode);
  virtual ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset);
  virtual ssize_t Pread(int descriptor, void* bytes, size_t count, off_t offset);
  virtual int Fsync(int descriptor);
  virtual int Bypass(int descriptor, bool on);
  virtual int Truncate(int descriptor, off_t bytes);
  virtual int Allocate(int descriptor, off_t bytes);
  virtual int Lock(int descriptor);
  virtual int Rename(const char* from, const char* to);
  virtual int MakeFolder(const char* path, mode_t mode);
  virtual int Unlink(const char* path);
  virtual int RemoveFolder(const char* path);
  virtual int Close(int descriptor);

  // Asked before a transfer that does not go through Pread or Pwrite, one of io_uring. An errno
  // that it is to end with instead, or 0: then *count, which may be lowered, is what it transfers.
  virtual int Admit(bool writes, int descriptor, size_t* count, off_t offset);
};

// The ones in force. Everything in io/ that opens, changes or closes a file calls these.
FileCalls& Files();

// Puts `calls` in force for the whole process and returns what was before; null on either side is
// the system's own. `calls` must live until it is replaced. For tests.
FileCalls* ReplaceFileCalls(FileCalls* calls);

}  // namespace zero
