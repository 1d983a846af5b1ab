// Runs of several processes, and runs that are killed, whose states lie on a disk.
#include <signal.h>

#include <filesystem>

#include "tests/catch.h"
#include "tests/collectives/processes.h"
#include "tests/collectives/rendezvous_test_util.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

using test::Ended;
using test::Process;

class OnDisk {
 public:
  OnDisk() { fs::create_directory(disk()); }
  std::string disk() const { return folder_.File("disk"); }
  std::string metrics() const { return folder_.File("m.jsonl"); }
  const TrainingFolder& folder() const { return folder_; }

  std::vector<std::string> Command(const std::vector<std::string>& more) const {
    return WithFlags({{"model", folder_.model()},
                      {"data", folder_.data()},
                      {"threads", "2"},
                      {"seed", "5"},
                      {"sequence_length", "16"},
                      {"metrics", metrics()},
                      {"offload_optimizer", "nvme"},
                      {"offload_param", "nvme"},
                      {"nvme_path", disk()}},
                     more);
  }
  Process Start(const std::vector<std::string>& more,
                const std::map<std::string, std::string>& environment = {}) const {
    return Process(ZERO_PROGRAMS "/zero-train", Command(more), environment, temporary_);
  }

 private:
  const TrainingFolder folder_;
  const TemporaryFolder temporary_;
};

TEST_CASE("zero-train: what a killed run left on the disk goes when the next one starts there",
          "[programs][offload]") {
  const OnDisk run;
  {
    Process process = run.Start({"--ranks=2", "--steps=1000000"});
    CHECK(test::Soon([&] { return LinesOf(ReadFile(run.metrics())) > 2; }));
    process.Signal(SIGKILL);
    CHECK(process.Wait().signal == SIGKILL);
  }
  CHECK_FALSE(fs::is_empty(run.disk()));
  WriteFile(run.disk() + "/mine.txt", "stays");
  const Ended next = run.Start({"--ranks=2", "--steps=2"}).Wait();
  INFO(next.err);
  CHECK(next.status == 0);
  CHECK(std::distance(fs::directory_iterator(run.disk()), fs::directory_iterator()) == 1);
  CHECK(ReadFile(run.disk() + "/mine.txt") == "stays");
}

TEST_CASE("zero-train: what was left on the disk of any rank is told of", "[programs][offload]") {
  const OnDisk run;
  const std::string disks[] = {run.disk(), run.folder().File("other")};
  fs::create_directory(disks[1]);
  const auto start_two = [&](const std::string& steps) {
    const std::string port = std::to_string(test::FreePort());
    std::vector<Process> processes;
    for (int rank = 0; rank < 2; ++rank) {
      processes.push_back(run.Start({"--steps", steps, "--nvme_path", disks[rank]},
                                    {{"RANK", std::to_string(rank)},
                                     {"WORLD_SIZE", "2"},
                                     {"LOCAL_RANK", std::to_string(rank)},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", port}}));
    }
    return processes;
  };
  {
    std::vector<Process> processes = start_two("1000000");
    CHECK(test::Soon([&] { return LinesOf(ReadFile(run.metrics())) > 2; }));
    for (const Process& process : processes) process.Signal(SIGKILL);
  }
  std::vector<std::string> left;
  for (const std::string& disk : disks) {
    for (const auto& entry : fs::directory_iterator(disk)) left.push_back(entry.path());
  }
  REQUIRE(left.size() == 2);
  std::vector<Process> processes = start_two("2");
  const Ended first = processes[0].Wait();
  CHECK(processes[1].Wait().status == 0);
  INFO(first.err);
  CHECK(first.status == 0);
  for (const std::string& path : left) {
    CHECK_THAT(first.out, ContainsSubstring("note        removed " + path + ", which a run had"));
  }
}

TEST_CASE("zero-train: what a stopped run had on the disk is gone when it has ended",
          "[programs][offload]") {
  const OnDisk run;
  Process process = run.Start({"--ranks=2", "--steps=1000000"});
  SECTION("after a step") {
    CHECK(test::Soon([&] { return LinesOf(ReadFile(run.metrics())) > 2; }));
  }
  SECTION("while it begins") {
    CHECK(test::Soon([&] { return !fs::is_empty(run.disk()); }));
  }
  process.Signal(SIGINT);
  const Ended ended = process.Wait();
  INFO(ended.out << ended.err);
  CHECK(ended.signal == SIGINT);
  CHECK_THAT(ended.out, ContainsSubstring("stopped by SIGINT "));
  CHECK(fs::is_empty(run.disk()));
}

TEST_CASE("zero-train --compare_stages: Ctrl-C ends it after a step and says so",
          "[programs][offload]") {
  const OnDisk run;
  Process process =
      run.Start({"--metrics=", "--ranks=2", "--compare_stages", "--steps=3", "--repeats=1000"});
  CHECK(test::Soon([&] { return !fs::is_empty(run.disk()); }));
  process.Signal(SIGINT);
  const Ended ended = process.Wait();
  INFO(ended.out << ended.err);
  CHECK(ended.signal == SIGINT);
  CHECK_THAT(ended.out, ContainsSubstring("stopped by SIGINT in round "));
  CHECK(fs::is_empty(run.disk()));
}

TEST_CASE("zero-train: processes offload what threads do, and flags that differ are named",
          "[programs][offload]") {
  const OnDisk run;
  const Ended threads = run.Start({"--ranks=2", "--steps=4"}).Wait();
  INFO(threads.err);
  REQUIRE(threads.status == 0);
  const std::string first = ReadFile(run.metrics());
  const auto start_two = [&](const std::vector<std::string>& second) {
    const std::string port = std::to_string(test::FreePort());
    std::vector<Process> processes;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::string> flags = {"--steps=4"};
      if (rank == 1) flags.insert(flags.end(), second.begin(), second.end());
      processes.push_back(run.Start(flags, {{"RANK", std::to_string(rank)},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_RANK", std::to_string(rank)},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", port}}));
    }
    std::vector<Ended> ended;
    for (Process& process : processes) ended.push_back(process.Wait());
    return ended;
  };
  for (const Ended& ended : start_two({})) {
    INFO(ended.err);
    CHECK(ended.status == 0);
  }
  CHECK(TextOf("loss", ReadFile(run.metrics())) == TextOf("loss", first));
  CHECK(TextOf("grad_norm", ReadFile(run.metrics())) == TextOf("grad_norm", first));
  CHECK(fs::is_empty(run.disk()));
  for (const Ended& ended : start_two({"--offload_ratio=0.5"})) {
    CHECK(ended.status == 1);
    CHECK_THAT(ended.err, ContainsSubstring("--offload_ratio="));
  }
  CHECK(fs::is_empty(run.disk()));
}

}  // namespace
}  // namespace zero::programs
