#include "examples/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <utility>

namespace zero::train {
namespace {

std::atomic<bool> stopping{false};  // StopOnSignals was called
std::atomic<uint64_t> stop_signals{0};
// Paths up to a null, made once and left: a handler may be in them at any time.
std::atomic<const char* const*> traces{nullptr};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "handlers must not wait");

// Calls nothing that a handler must not.
void Handle(int signal) {
  if (stopping.load() && (signal == SIGTERM || signal == SIGUSR1)) {
    const uint64_t bit = signal == SIGTERM ? kStopTerm : kStopUser;
    const bool first = (stop_signals.fetch_or(bit) & bit) == 0;
    if (first || signal == SIGUSR1) return;
  }
  if (const char* const* path = traces.load()) {
    // One of them fails.
    for (; *path != nullptr; ++path) {
      (void)unlink(*path);
      (void)rmdir(*path);
    }
  }
  (void)std::signal(signal, SIG_DFL);
  (void)raise(signal);  // as soon as this returns
}

void Install(int signal) {
  struct sigaction old = {};
  if (sigaction(signal, nullptr, &old) != 0 || old.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  (void)sigaction(signal, &action, nullptr);
}

}  // namespace

void StopOnSignals() {
  stopping.store(true);
  Install(SIGTERM);
  Install(SIGUSR1);
}

uint64_t StopSignals() { return stop_signals.load(); }

std::string StopSignalName(uint64_t bits) {
  return (bits & kStopTerm) != 0 ? "SIGTERM" : "SIGUSR1";
}

void RemoveOnSignals(const std::vector<std::string>& paths) {
  if (paths.empty()) return;
  struct List {
    std::vector<std::string> paths;
    std::vector<const char*> texts;
  };
  static auto* const lists = new std::vector<std::unique_ptr<List>>();
  std::vector<std::string> all = paths;
  if (!lists->empty()) {
    const std::vector<std::string>& before = lists->back()->paths;
    all.insert(all.end(), before.begin(), before.end());
  }
  List& list = *lists->emplace_back(std::make_unique<List>());
  list.paths = std::move(all);
  for (const std::string& path : list.paths) list.texts.push_back(path.c_str());
  list.texts.push_back(nullptr);
  traces.store(list.texts.data());
  for (const int signal : {SIGINT, SIGHUP, SIGTERM}) Install(signal);
}

}  // namespace zero::train
