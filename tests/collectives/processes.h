// Child processes that may be killed, and what they leave behind.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/io/temporary_folder.h"

namespace zero::test {

struct Ended {
  int status = -1;  // exit status; -1: none
  int signal = 0;   // that ended it
  std::string out;
  std::string err;
};

// A program that runs. Killed and waited for at the end.
class Process {
 public:
  // `environment` is added to this process's. Launchers' variables of this process are not passed
  // on. `temporary`: TMPDIR of the child.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment, const TemporaryFolder& temporary);
  Process(Process&& other) noexcept;
  Process(const Process&) = delete;
  ~Process();

  // Waits, and kills it after `seconds`.
  Ended Wait(double seconds = 100);
  void Signal(int signal) const;
  // Waits until the process is stopped, at most 60 seconds; whether it is.
  bool WaitStopped() const;

 private:
  pid_t pid_ = 0;
  std::string out_;
  std::string err_;
};

// Names in /dev/shm.
std::set<std::string> SharedMemory();
// The same names as `before`, now or soon: other programs of this machine come and go.
bool SameSharedMemory(const std::set<std::string>& before);

// Processes whose environment has NAME=value in it, this one left out.
std::vector<pid_t> ProcessesWith(const std::string& variable);

}  // namespace zero::test
