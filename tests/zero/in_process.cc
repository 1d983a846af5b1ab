#include "tests/zero/in_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace zero::test {

PendingProcess StartProcess(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    const std::string said = body();
    (void)!write(ends[1], said.data(), said.size());
    _exit(said.empty() ? 0 : 1);
  }
  close(ends[1]);
  return {child, ends[0]};
}

ProcessEnd EndOf(const PendingProcess& process) {
  if (process.pid <= 0) return {false, -1, "no process"};
  ProcessEnd end;
  char part[4096];
  for (ssize_t n; (n = read(process.said, part, sizeof(part))) > 0;) {
    end.said.append(part, static_cast<size_t>(n));
  }
  close(process.said);
  int status = 0;
  waitpid(process.pid, &status, 0);
  end.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (WIFSIGNALED(status) && !end.killed) {
    absl::StrAppend(&end.said, " (ended by signal ", WTERMSIG(status), ")");
  }
  return end;
}

ProcessEnd InProcess(const std::function<std::string()>& body) { return EndOf(StartProcess(body)); }

}  // namespace zero::test
