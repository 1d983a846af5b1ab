// Functions run in processes of their own.
#pragma once

#include <functional>
#include <string>

namespace zero::test {

// How a process ended that ran a function: what the function returned.
struct ProcessEnd {
  bool killed = false;  // by SIGKILL
  int status = 0;       // exit status
  std::string said;
};
struct PendingProcess {
  int pid = 0;
  int said = -1;  // the end of a pipe
};
// Forks: nothing else may run in this process.
PendingProcess StartProcess(const std::function<std::string()>& body);
ProcessEnd EndOf(const PendingProcess& process);
ProcessEnd InProcess(const std::function<std::string()>& body);

}  // namespace zero::test
