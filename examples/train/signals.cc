#include "examples/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace zero::train {
namespace {

// The first of those that have come names the stop.
constexpr struct Kind {
  uint64_t bit;
  int signal;
  const char* name;
  const char* asked;  // said of the first one
  const char* ended;  // said of one that ends the process
} kKinds[] = {
    {kStopTerm, SIGTERM, "SIGTERM",
     "zero-train: SIGTERM: the run ends after the steps under way; a second SIGTERM ends it at "
     "once\n",
     "zero-train: ended by SIGTERM\n"},
    {kStopInterrupt, SIGINT, "SIGINT",
     "zero-train: SIGINT: the run ends after the steps under way; a second SIGINT ends it at "
     "once\n",
     "zero-train: ended by SIGINT\n"},
    {kStopHangUp, SIGHUP, "SIGHUP",
     "zero-train: SIGHUP: the run ends after the steps under way; a second SIGHUP ends it at "
     "once\n",
     "zero-train: ended by SIGHUP\n"},
    {kStopUser, SIGUSR1, "SIGUSR1", "", ""},
};

std::atomic<bool> speaking{false};
std::atomic<bool> stopping{false};  // StopOnSignals was called
std::atomic<uint64_t> stop_signals{0};
// Paths up to a null, made once and left: a handler may be in them at any time.
std::atomic<const char* const*> traces{nullptr};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "handlers must not wait");

// These three call nothing that a handler must not.
void Tell(const char* line) {
  if (!speaking.load()) return;
  // On a terminal the line of progress is being drawn.
  if (isatty(STDERR_FILENO) == 1) (void)!write(STDERR_FILENO, "\n", 1);
  (void)!write(STDERR_FILENO, line, std::strlen(line));
}

void RemoveTraces() {
  const char* const* path = traces.load();
  if (path == nullptr) return;
  // One of them fails.
  for (; *path != nullptr; ++path) {
    (void)unlink(*path);
    (void)rmdir(*path);
  }
}

void Handle(int signal) {
  for (const Kind& kind : kKinds) {
    if (kind.signal != signal) continue;
    const bool first = (stop_signals.fetch_or(kind.bit) & kind.bit) == 0;
    if (signal == SIGUSR1) return;
    Tell(first && stopping.load() ? kind.asked : kind.ended);
    if (first && stopping.load()) return;
  }
  RemoveTraces();
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

const Kind& KindOf(uint64_t bits) {
  for (const Kind& kind : kKinds) {
    if ((bits & kind.bit) != 0) return kind;
  }
  return kKinds[0];
}

}  // namespace

uint64_t StopSignals() { return stop_signals.load(); }

std::string StopSignalName(uint64_t bits) { return KindOf(bits).name; }

int StopSignalNumber(uint64_t bits) { return KindOf(bits).signal; }

std::string SignalHelp() {
  return "signals: SIGINT (Ctrl-C), SIGTERM and SIGHUP end the run after the steps under way, that "
         "in hand\n"
         "  and three at most, a second one of the same name at once; with --checkpoint_dir the "
         "last step\n"
         "  is saved first. SIGUSR1 does the same with --checkpoint_dir, and nothing without\n"
         "exit status: 0: the run came to its end, or was stopped and --resume goes on; 1: it "
         "failed;\n"
         "  2: a wrong flag; the signal's (128 and its number, in shells): it was ended, nothing "
         "saved\n";
}

void ListenToSignals(bool speaks) {
  speaking.store(speaks);
  for (const Kind& kind : kKinds) Install(kind.signal);
}

void StopOnSignals() { stopping.store(true); }

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
}

void EndBySignal(int signal) {
  (void)std::signal(signal, SIG_DFL);
  (void)raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace zero::train
