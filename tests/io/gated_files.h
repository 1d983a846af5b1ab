// Files() that asks before every call what is to become of it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tests/io/replaced_files.h"

// The path that a descriptor is open on.
inline std::string PathOf(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t n = readlink(link.c_str(), path, sizeof(path));
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

struct FileCall {
  // Changes something: "create", "write", "fsync", "truncate", "rename", "mkdir", "unlink" or
  // "rmdir". Does not: "open" and "read", which open what exists to write or only to read it, and
  // "lock".
  std::string kind;
  std::string path;  // of a rename: the new one
  int64_t number;    // among the calls that change something, from 1; 0 for others
};

// In force from its making to its end. Calls count, and the gate is asked, only while it is armed.
class GatedFiles : public ReplacedFiles {
 public:
  // What becomes of a call: kGoes: it is made; an errno: it fails; kHalf: a write writes half;
  // kNothing: it does nothing and succeeds (not for what opens or writes).
  static constexpr int kGoes = 0;
  static constexpr int kHalf = -1;
  static constexpr int kNothing = -2;
  // Called from any thread, several at a time; what it calls itself comes to it too.
  using Gate = std::function<int(const FileCall& call)>;

  explicit GatedFiles(Gate gate = nullptr, bool armed = true)
      : gate_(std::move(gate)), armed_(armed) {}

  void Arm() { armed_ = true; }
  void Disarm() { armed_ = false; }
  // So far, of those that change something.
  int64_t calls() const { return calls_; }

  int Open(const char* path, int flags, mode_t mode) override {
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    const bool creates = (flags & O_CREAT) != 0;
    const int next = Next(creates ? "create" : writes ? "open" : "read", path, creates);
    return Fails(next) ? -1 : FileCalls::Open(path, flags, mode);
  }
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    const int next = Next("write", PathOf(descriptor));
    if (Fails(next)) return -1;
    if (next == kHalf) count = std::max<size_t>(count / 2, 1);
    return FileCalls::Pwrite(descriptor, bytes, count, offset);
  }
  int Fsync(int descriptor) override {
    return Made(Next("fsync", PathOf(descriptor)), [&] { return FileCalls::Fsync(descriptor); });
  }
  int Truncate(int descriptor, off_t bytes) override {
    return Made(Next("truncate", PathOf(descriptor)),
                [&] { return FileCalls::Truncate(descriptor, bytes); });
  }
  int Lock(int descriptor) override {
    return Made(Next("lock", PathOf(descriptor), false),
                [&] { return FileCalls::Lock(descriptor); });
  }
  int Rename(const char* from, const char* to) override {
    return Made(Next("rename", to), [&] { return FileCalls::Rename(from, to); });
  }
  int MakeFolder(const char* path, mode_t mode) override {
    return Made(Next("mkdir", path), [&] { return FileCalls::MakeFolder(path, mode); });
  }
  int Unlink(const char* path) override {
    return Made(Next("unlink", path), [&] { return FileCalls::Unlink(path); });
  }
  int RemoveFolder(const char* path) override {
    return Made(Next("rmdir", path), [&] { return FileCalls::RemoveFolder(path); });
  }

 private:
  int Next(const char* kind, const std::string& path, bool changes = true) {
    if (!armed_) return kGoes;
    const int64_t number = changes ? ++calls_ : 0;
    return gate_ ? gate_({kind, path, number}) : kGoes;
  }
  static bool Fails(int next) {
    if (next > 0) errno = next;
    return next > 0;
  }
  template <class Call>
  static int Made(int next, Call call) {
    if (Fails(next)) return -1;
    return next == kNothing ? 0 : call();
  }

  const Gate gate_;
  std::atomic<bool> armed_;
  std::atomic<int64_t> calls_{0};
};
