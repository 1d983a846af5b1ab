#include "tests/collectives/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/collectives/rendezvous_test_util.h"

extern char** environ;

namespace zero::test {
namespace {

bool OfLauncher(const std::string& variable) {
  for (const char* prefix : {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "MASTER_", "OMPI_", "PMIX_",
                             "SLURM_", "ZERO_JOB_TOKEN=", "TMPDIR="}) {
    if (variable.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment,
                 const TemporaryFolder& temporary) {
  static int count = 0;
  out_ = temporary.path() + ".out" + std::to_string(count);
  err_ = temporary.path() + ".err" + std::to_string(count++);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = {"TMPDIR=" + temporary.path()};
  for (char** at = environ; *at != nullptr; ++at) {
    if (!OfLauncher(*at)) variables.push_back(*at);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const int error = posix_spawnp(&pid_, program.c_str(), &actions, nullptr, Pointers(words).data(),
                                 Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) pid_ = 0;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), out_(other.out_), err_(other.err_) {
  other.out_.clear();
}

Process::~Process() {
  if (pid_ != 0) (void)Wait(0);
  if (out_.empty()) return;
  unlink(out_.c_str());
  unlink(err_.c_str());
}

Ended Process::Wait(double seconds) {
  Ended ended;
  if (pid_ == 0) return ended;
  const double until = Seconds() + seconds;
  int status = 0;
  pid_t waited = 0;
  while ((waited = waitpid(pid_, &status, WNOHANG)) == 0 && Seconds() < until) Sleep(2);
  if (waited == 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = 0;
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  ended.out = ReadFile(out_);
  ended.err = ReadFile(err_);
  return ended;
}

void Process::Signal(int signal) const {
  if (pid_ != 0) kill(pid_, signal);
}

bool Process::WaitStopped() const {
  siginfo_t info{};
  const double until = Seconds() + 60;
  while (Seconds() < until) {
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG) == 0 &&
        info.si_pid == pid_) {
      return true;
    }
    Sleep(2);
  }
  return false;
}

std::set<std::string> SharedMemory() {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

bool SameSharedMemory(const std::set<std::string>& before) {
  return Soon([&] {
    const std::set<std::string> now = SharedMemory();
    return std::includes(before.begin(), before.end(), now.begin(), now.end());
  });
}

std::vector<pid_t> ProcessesWith(const std::string& variable) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string variables = '\0' + ReadFile("/proc/" + name + "/environ");
    if (variables.find('\0' + variable + '\0') == std::string::npos) continue;
    if (std::stoi(name) != getpid()) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace zero::test
