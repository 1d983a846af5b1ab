// Runs that are stopped or killed, and what is there afterwards.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "examples/train/signals.h"
#include "tests/catch.h"
#include "tests/collectives/processes.h"
#include "tests/collectives/rendezvous_test_util.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

using test::Ended;
using test::Process;
using Flags = std::vector<std::string>;

const std::string kTrain = ZERO_PROGRAMS "/zero-train";

class Saving {
 public:
  std::string saved() const { return folder_.File("saved"); }
  std::string metrics() const { return folder_.File("m.jsonl"); }
  const TrainingFolder& folder() const { return folder_; }
  int Steps() const { return LinesOf(ReadFile(metrics())); }

  Flags Command(const Flags& more) const {
    return WithFlags({{"model", folder_.model()},
                      {"data", folder_.data()},
                      {"threads", "2"},
                      {"seed", "5"},
                      {"clip", "1"},
                      {"dtype", "fp32"},
                      {"sequence_length", "16"},
                      {"steps", "1000000"},
                      {"checkpoint_dir", saved()},
                      {"metrics", metrics()},
                      {"output", folder_.File("out/here")}},
                     more);
  }
  Process Start(const Flags& more,
                const std::map<std::string, std::string>& environment = {}) const {
    return Process(kTrain, Command(more), environment, temporary_);
  }
  // Two ranks, as torchrun would start them.
  std::vector<Process> StartTwo(const Flags& more) const {
    const std::string port = std::to_string(test::FreePort());
    std::vector<Process> processes;
    for (int rank = 0; rank < 2; ++rank) {
      processes.push_back(Start(more, {{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", "2"},
                                       {"LOCAL_RANK", std::to_string(rank)},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", port}}));
    }
    return processes;
  }
  const TemporaryFolder& temporary() const { return temporary_; }

  // A run that was stopped in order: it is saved as far as it is told of, and can be resumed.
  void CheckStopped(const Ended& ended, const std::string& signal) const {
    INFO(ended.out << ended.err);
    CHECK(ended.status == 0);
    const auto latest = LatestCheckpoint(saved());
    REQUIRE_OK(latest.status());
    CHECK(latest->step == Steps());
    CHECK_THAT(ended.out, ContainsSubstring(
                              absl::StrCat("stopped by ", signal, " after step ", latest->step)));
    CHECK_FALSE(fs::exists(folder_.File("out")));
    const int64_t steps = latest->step + 2;
    const Ended resumed = Start({"--resume=latest", absl::StrCat("--steps=", steps)}).Wait();
    INFO(resumed.err);
    CHECK(resumed.status == 0);
    CHECK_THAT(resumed.out, ContainsSubstring(absl::StrCat("step ", latest->step, " of ", steps)));
    CHECK(Steps() == steps);
  }

 private:
  const TrainingFolder folder_;
  const TemporaryFolder temporary_;
};

std::string NameOf(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
}

TEST_CASE("zero-train: signals finish the step and save it on ranks that are threads",
          "[programs][checkpoint]") {
  const int signal = GENERATE(SIGTERM, SIGINT, SIGUSR1);
  const std::string stage = GENERATE("--stage=0", "--stage=3");
  const Saving run;
  Process process = run.Start({"--ranks=3", stage});
  CHECK(test::Soon([&] { return run.Steps() > 3; }));
  process.Signal(signal);
  run.CheckStopped(process.Wait(), NameOf(signal));
}

TEST_CASE("zero-train: a signal to one of several processes stops all after the same step",
          "[programs][checkpoint]") {
  const int signalled = GENERATE(0, 1);
  const Saving run;
  std::vector<Process> processes = run.StartTwo({});
  CHECK(test::Soon([&] { return run.Steps() > 3; }));
  processes[signalled].Signal(SIGTERM);
  const Ended first = processes[0].Wait();
  const Ended second = processes[1].Wait();
  INFO(second.err);
  CHECK(second.status == 0);
  CHECK((second.out + second.err).empty());
  run.CheckStopped(first, "SIGTERM");
}

TEST_CASE("zero-train --resume: processes go on together, or are told together why not",
          "[programs][checkpoint]") {
  const Saving run;
  const auto losses = [&] { return TextOf("loss", ReadFile(run.metrics())); };
  REQUIRE(run.Start({"--ranks=2", "--stage=1", "--steps=6", "--save_every=3"}).Wait().status == 0);
  const auto whole = losses();
  REQUIRE(whole.size() == 6);
  fs::remove_all(run.saved() + "/" + CheckpointName(6));
  std::vector<Process> processes = run.StartTwo({"--stage=1", "--steps=6", "--resume=latest"});
  const Ended first = processes[0].Wait();
  const Ended second = processes[1].Wait();
  INFO(first.err << second.err);
  CHECK(first.status == 0);
  CHECK(second.status == 0);
  CHECK_THAT(first.out, ContainsSubstring("step 3 of 6, 6 samples taken, written by 2 ranks"));
  CHECK(second.out.empty());
  CHECK(losses() == whole);

  for (Process& process : run.StartTwo({"--resume=latest", "--seed=6"})) {
    const Ended ended = process.Wait();
    INFO(ended.err);
    CHECK(ended.status == 1);
    CHECK(LinesOf(ended.err) == 1);
    CHECK_THAT(ended.err, ContainsSubstring("seed is 5 in the checkpoint, 6 now"));
  }
}

#ifdef ZERO_MPIRUN
TEST_CASE("zero-train: SIGUSR1 to mpirun stops and saves all processes", "[programs][checkpoint]") {
  const Saving run;
  Flags words = {"--allow-run-as-root", "--oversubscribe", "-np", "2", kTrain};
  const Flags own = run.Command({"--stage=2"});
  words.insert(words.end(), own.begin(), own.end());
  Process process(ZERO_MPIRUN, words, {{"ASAN_OPTIONS", "detect_leaks=0"}}, run.temporary());
  CHECK(test::Soon([&] { return run.Steps() > 3; }));
  process.Signal(SIGUSR1);
  run.CheckStopped(process.Wait(), "SIGUSR1");
}
#endif

TEST_CASE("zero-train: without a place for checkpoints a signal ends the run after a step",
          "[programs][checkpoint]") {
  const int signal = GENERATE(SIGTERM, SIGINT);
  const Saving run;
  Process process = run.Start({"--checkpoint_dir=", "--ranks=2"});
  CHECK(test::Soon([&] { return run.Steps() > 3; }));
  CHECK(fs::exists(run.folder().File("out/here")));
  process.Signal(signal);
  const Ended ended = process.Wait();
  // As for whoever has started it: nothing is kept of the work.
  CHECK(ended.signal == signal);
  CHECK_THAT(ended.err, ContainsSubstring(absl::StrCat("zero-train: ", NameOf(signal),
                                                       ": the run ends after the step")));
  CHECK_THAT(ended.out,
             ContainsSubstring(absl::StrCat("stopped by ", NameOf(signal), " after step ",
                                            run.Steps(), "; nothing is saved")));
  CHECK_FALSE(fs::exists(run.folder().File("out")));
  CHECK_FALSE(fs::exists(run.saved()));
}

TEST_CASE("zero-train: a signal before the first step ends the run as it ends without checkpoints",
          "[programs][checkpoint]") {
  const Saving run;
  // Holds the run up, between its folders and its first step, until somebody reads.
  const std::string pipe = run.folder().File("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Process process = run.Start({"--metrics", pipe, "--ranks=2"});
  CHECK(test::Soon([&] { return fs::exists(run.folder().File("out/here")); }));
  process.Signal(SIGUSR1);
  const int reader = open(pipe.c_str(), O_RDONLY);
  REQUIRE(reader >= 0);
  const Ended ended = process.Wait();
  close(reader);
  CHECK(ended.signal == SIGUSR1);
  CHECK_THAT(ended.out,
             ContainsSubstring("stopped by SIGUSR1 before step 1; there is nothing to save"));
  CHECK_FALSE(fs::exists(run.saved()));
  CHECK_FALSE(fs::exists(run.folder().File("out")));
}

TEST_CASE("zero-train: SIGUSR1 without a place for checkpoints is told of and stops nothing",
          "[programs][checkpoint]") {
  const Saving run;
  std::vector<Process> processes = run.StartTwo({"--checkpoint_dir="});
  CHECK(test::Soon([&] { return run.Steps() > 3; }));
  processes[1].Signal(SIGUSR1);
  const int then = run.Steps();
  CHECK(test::Soon([&] { return run.Steps() > then + 10; }));
  // To both at once, as a launcher passes it on.
  for (const Process& process : processes) process.Signal(SIGINT);
  const Ended first = processes[0].Wait();
  const Ended second = processes[1].Wait();
  CHECK(first.signal == SIGINT);
  CHECK(second.signal == SIGINT);
  CHECK((second.out + second.err).empty());
  CHECK_THAT(first.out, ContainsSubstring("SIGUSR1 stops and saves a run, but this one has no "
                                          "--checkpoint_dir: it goes on"));
  CHECK(LinesOf(first.err) == 1);
}

// In a process of its own: what Handle does there is what the signal ends it with.
int SignalOf(const std::function<int()>& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_CASE("Signals: the first of a name asks and the second ends the process at once",
          "[programs][checkpoint]") {
  const auto listen = [] {
    train::ListenToSignals(/*speaks=*/false);
    train::StopOnSignals();
  };
  for (const auto& [signal, bit] :
       {std::pair(SIGTERM, train::kStopTerm), std::pair(SIGINT, train::kStopInterrupt),
        std::pair(SIGHUP, train::kStopHangUp)}) {
    CAPTURE(signal);
    CHECK(SignalOf([&, signal = signal, bit = bit] {
            listen();
            if (train::StopSignals() != 0) return 2;
            raise(signal);
            return train::StopSignals() == bit && train::StopSignalNumber(bit) == signal ? 0 : 1;
          }) == 0);
    CHECK(SignalOf([&, signal = signal] {
            listen();
            raise(signal);
            raise(signal);
            return 0;
          }) == -signal);
    // Before there is a step in hand.
    CHECK(SignalOf([signal = signal] {
            train::ListenToSignals(/*speaks=*/false);
            raise(signal);
            return 0;
          }) == -signal);
  }
  CHECK(SignalOf([&] {
          listen();
          raise(SIGUSR1);
          raise(SIGUSR1);
          raise(SIGTERM);
          return train::StopSignals() == (train::kStopUser | train::kStopTerm) ? 0 : 1;
        }) == 0);
}

TEST_CASE("Signals: folders that are empty go, others and ignored signals stay",
          "[programs][checkpoint]") {
  const TemporaryFolder folder;
  const auto end = [&](bool ignored) {
    fs::create_directories(folder.File("a/b"));
    return SignalOf([&] {
      if (ignored) signal(SIGHUP, SIG_IGN);
      train::ListenToSignals(/*speaks=*/false);
      train::RemoveOnSignals({folder.File("a/b"), folder.File("a")});
      raise(SIGHUP);
      return 0;
    });
  };
  CHECK(end(true) == 0);
  CHECK(fs::exists(folder.File("a/b")));
  CHECK(end(false) == -SIGHUP);
  CHECK_FALSE(fs::exists(folder.File("a")));
  fs::create_directories(folder.File("a/b"));
  WriteFile(folder.File("a/file"), "");
  CHECK(end(false) == -SIGHUP);
  CHECK(folder.Names() == std::vector<std::string>{"a"});
  CHECK_FALSE(fs::exists(folder.File("a/b")));
}

TEST_CASE("zero-train: kill -9 again and again loses no more than the last steps",
          "[programs][checkpoint]") {
  const Saving run;
  const Flags flags = {"--ranks=2", "--stage=3", "--save_every=1", "--keep_last=3",
                       "--resume=latest"};
  int64_t before = 0;
  for (int round = 0; round < 6; ++round) {
    Process process = run.Start(flags);
    CHECK(test::Soon([&] {
      const auto latest = LatestCheckpoint(run.saved());
      return latest.ok() && latest->step > before + round;
    }));
    process.Signal(SIGKILL);
    CHECK(process.Wait().signal == SIGKILL);
    const auto latest = LatestCheckpoint(run.saved());
    REQUIRE_OK(latest.status());
    CHECK(latest->step > before);
    before = latest->step;
  }
  const std::string steps = absl::StrCat("--steps=", before + 3);
  Flags last = flags;
  last.push_back(steps);
  const Ended ended = run.Start(last).Wait();
  INFO(ended.err);
  CHECK(ended.status == 0);
  const Ended whole =
      run.Start({"--ranks=2", "--stage=3", "--checkpoint_dir=", steps, "--metrics",
                 run.folder().File("whole.jsonl"), "--output=" + run.folder().File("whole")})
          .Wait();
  REQUIRE(whole.status == 0);
  for (const char* key : {"step", "loss", "grad_norm"}) {
    CHECK(TextOf(key, ReadFile(run.metrics())) ==
          TextOf(key, ReadFile(run.folder().File("whole.jsonl"))));
  }
  const bool same = ReadFile(run.folder().File("out/here/model.safetensors")) ==
                    ReadFile(run.folder().File("whole/model.safetensors"));
  CHECK(same);
  size_t names = 0;
  for (const auto& entry : fs::directory_iterator(run.saved())) {
    CHECK(entry.path().filename().string().rfind("step-", 0) == 0);
    ++names;
  }
  CHECK(names == 3);
}

}  // namespace
}  // namespace zero::programs
