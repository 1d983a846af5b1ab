// Files() that a test has replaced.
#pragma once

#include "io/file_calls.h"

// In force from its making to its end, when no other thread calls; does what the system does. Tests
// derive from it to record calls, to change what they are given, or to make them fail.
class ReplacedFiles : public zero::FileCalls {
 public:
  ReplacedFiles() : before_(zero::ReplaceFileCalls(this)) {}
  ~ReplacedFiles() override { zero::ReplaceFileCalls(before_); }
  ReplacedFiles(const ReplacedFiles&) = delete;
  ReplacedFiles& operator=(const ReplacedFiles&) = delete;

 private:
  zero::FileCalls* const before_;
};
