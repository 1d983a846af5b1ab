#include "tests/programs/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/io/temporary_folder.h"

extern char** environ;

namespace zero::programs {

Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  const std::string out = folder.File("out"), err = folder.File("err");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);

  std::string path = ZERO_PROGRAMS "/" + program;
  std::vector<std::string> copies = arguments;
  std::vector<char*> values = {path.data()};
  for (std::string& copy : copies) values.push_back(copy.data());
  values.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, path.c_str(), &actions, nullptr, values.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  Outcome outcome;
  if (error != 0) return outcome;
  int status = 0;
  if (waitpid(child, &status, 0) == child && WIFEXITED(status))
    outcome.status = WEXITSTATUS(status);
  outcome.out = ReadFile(out);
  outcome.err = ReadFile(err);
  return outcome;
}

int LinesOf(const std::string& text) {
  const bool rest = !text.empty() && text.back() != '\n';
  return static_cast<int>(std::count(text.begin(), text.end(), '\n')) + (rest ? 1 : 0);
}

}  // namespace zero::programs
