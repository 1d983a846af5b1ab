// Programs with ranks that are processes, started by hand or by mpirun, or that meet as those do.
#include <signal.h>

#include <algorithm>
#include <map>
#include <vector>

#include "collectives/socket.h"
#include "tests/catch.h"
#include "tests/collectives/processes.h"
#include "tests/collectives/rendezvous_test_util.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

using test::Ended;
using test::Process;

const std::string kTrain = ZERO_PROGRAMS "/zero-train";

std::vector<std::string> Flags(const TrainingFolder& folder, const std::vector<std::string>& more) {
  return WithFlags({{"model", folder.model()},
                    {"data", folder.data()},
                    {"steps", "4"},
                    {"threads", "2"},
                    {"seed", "5"},
                    {"clip", "1"},
                    {"sequence_length", "16"},
                    {"log_every", "1"}},
                   more);
}

// What there has to be, and nothing that a configuration file says.
std::vector<std::string> Files(const TrainingFolder& folder) {
  return {"--model", folder.model(), "--data", folder.data(), "--threads=2", "--steps=4"};
}

// Two processes as torchrun would start them; rank 1's flags may differ.
std::vector<Process> StartTwo(const std::vector<std::string>& first,
                              const std::vector<std::string>& second,
                              const TemporaryFolder& temporary) {
  const std::string port = std::to_string(test::FreePort());
  std::vector<Process> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back(kTrain, rank == 0 ? first : second,
                           std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                              {"WORLD_SIZE", "2"},
                                                              {"LOCAL_RANK", std::to_string(rank)},
                                                              {"MASTER_ADDR", "127.0.0.1"},
                                                              {"MASTER_PORT", port}},
                           temporary);
  }
  return processes;
}

// The words "loss 5.5432" of each printed line.
std::vector<std::string> PrintedLosses(const std::string& out) {
  std::vector<std::string> losses;
  for (size_t at = out.find("loss "); at != std::string::npos; at = out.find("loss ", at + 5)) {
    losses.push_back(out.substr(at, out.find_first_of(" \n", at + 5) - at));
  }
  return losses;
}

TEST_CASE("zero-train: two processes print and save what two threads do", "[programs]") {
  const std::string stage = GENERATE("--stage=0", "--stage=3");
  const bool mpirun = GENERATE(false, true);
#ifndef ZERO_MPIRUN
  if (mpirun) return;
#endif
  CAPTURE(stage, mpirun);
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto flags = [&](const std::string& name) {
    return Flags(folder, {stage, "--evaluate_every=2", "--metrics", folder.File(name + ".jsonl"),
                          "--output", folder.File(name)});
  };
  std::vector<std::string> threads = flags("threads");
  threads.push_back("--ranks=2");
  const Ended expected = Process(kTrain, threads, {}, temporary).Wait();
  INFO(expected.err);
  REQUIRE(expected.status == 0);

  std::string out;
#ifdef ZERO_MPIRUN
  if (mpirun) {
    std::vector<std::string> words = {"--allow-run-as-root", "--oversubscribe", "-np", "2", kTrain};
    const std::vector<std::string> own = flags("processes");
    words.insert(words.end(), own.begin(), own.end());
    const Ended ended =
        Process(ZERO_MPIRUN, words, {{"ASAN_OPTIONS", "detect_leaks=0"}}, temporary).Wait();
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    out = ended.out;
  }
#endif
  if (!mpirun) {
    std::vector<Process> processes = StartTwo(flags("processes"), flags("processes"), temporary);
    const Ended first = processes[0].Wait();
    const Ended second = processes[1].Wait();
    INFO(first.err << second.err);
    REQUIRE(first.status == 0);
    REQUIRE(second.status == 0);
    CHECK(first.err.empty());
    CHECK((second.out + second.err).empty());
    out = first.out;
  }
  CHECK(PrintedLosses(expected.out).size() >= 4);
  CHECK(PrintedLosses(out) == PrintedLosses(expected.out));
  const auto losses = [&](const std::string& name, const std::string& key) {
    return TextOf(key, ReadFile(folder.File(name + ".jsonl")));
  };
  for (const char* key : {"loss", "grad_norm", "evaluation_loss"}) {
    CAPTURE(key);
    CHECK_FALSE(losses("threads", key).empty());
    CHECK(losses("processes", key) == losses("threads", key));
  }
  const std::string weights = ReadFile(folder.File("threads") + "/model.safetensors");
  CHECK(weights.size() > 1000);
  CHECK(weights == ReadFile(folder.File("processes") + "/model.safetensors"));
}

TEST_CASE("zero-train: two processes write the shards of one folder that two threads do",
          "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto flags = [&](const std::string& name) {
    return Flags(folder, {"--output", folder.File(name), "--max_shard_size=9KB",
                          "--output_dtype=fp32", "--model", folder.File("model")});
  };
  std::filesystem::create_directory(folder.File("model"));
  WriteFile(folder.File("model/config.json"), ReadFile(folder.model()));
  WriteFile(folder.File("model/tokenizer.json"), "{}");
  std::vector<std::string> threads = flags("threads");
  threads.push_back("--ranks=2");
  REQUIRE(Process(kTrain, threads, {}, temporary).Wait().status == 0);
  std::vector<Process> processes = StartTwo(flags("processes"), flags("processes"), temporary);
  const Ended first = processes[0].Wait();
  const Ended second = processes[1].Wait();
  INFO(first.err << second.err);
  REQUIRE(first.status == 0);
  REQUIRE(second.status == 0);
  CHECK_THAT(first.out, ContainsSubstring("saved to " + folder.File("processes")) &&
                            !ContainsSubstring("do not share"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.File("threads"))) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    CHECK(ReadFile(entry.path().string()) == ReadFile(folder.File("processes/" + name)));
    ++files;
  }
  CHECK(files > 8);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.File("processes")),
                      std::filesystem::directory_iterator()) == files);
}

// What both print, with status 1 and one line each.
void CheckBothFail(std::vector<Process>& processes, const std::string& words) {
  for (Process& process : processes) {
    const Ended ended = process.Wait();
    INFO(ended.err);
    CHECK(ended.status == 1);
    CHECK(LinesOf(ended.err) == 1);
    CHECK_THAT(ended.err, ContainsSubstring("zero-train: ") && ContainsSubstring(words));
  }
}

TEST_CASE("zero-train: processes with other flags are told which", "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  auto processes = StartTwo(Flags(folder, {"--stage=3"}), Flags(folder, {"--stage=2"}), temporary);
  CheckBothFail(processes, "'--stage=3' against '--stage=2'");
}

TEST_CASE("zero-train: processes with other texts or models are told what differs", "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  std::string text = ReadFile(folder.data());
  text[4000] = text[4000] == 'x' ? 'y' : 'x';
  WriteFile(folder.File("other.txt"), text);
  std::string model = ReadFile(folder.model());
  const std::string layers = "\"num_hidden_layers\": 2";
  REQUIRE(model.find(layers) != std::string::npos);
  WriteFile(folder.File("other.json"),
            model.replace(model.find(layers), layers.size(), "\"num_hidden_layers\": 3"));
  const auto told = [&](const std::vector<std::string>& first,
                        const std::vector<std::string>& second, const std::string& words) {
    auto processes = StartTwo(Flags(folder, first), Flags(folder, second), temporary);
    CheckBothFail(processes, words);
  };
  told({}, {"--data", folder.File("other.txt")}, "'--data: ");
  told({"--evaluate_every=2"}, {"--evaluate_every=2", "--evaluate_data", folder.File("other.txt")},
       "'--evaluate_data: ");
  told({"--output", folder.File("a")}, {"--output", folder.File("b")}, "'--output=");
  told({}, {"--model", folder.File("other.json")},
       "'--model: \"num_hidden_layers\": 2' against '--model: \"num_hidden_layers\": 3'");
}

TEST_CASE("zero-train: processes with other configuration files are told the keys", "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto told = [&](const std::string& first, const std::string& second,
                        const std::string& words) {
    WriteFile(folder.File("first.json"), "{\"train_batch_size\": 2, " + first + "}");
    WriteFile(folder.File("second.json"), "{\"train_batch_size\": 2, " + second + "}");
    auto processes =
        StartTwo(WithFlags({{"config", folder.File("first.json")}}, Files(folder)),
                 WithFlags({{"config", folder.File("second.json")}}, Files(folder)), temporary);
    CheckBothFail(processes, words);
  };
  told(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.25}})",
       R"("optimizer": {"type": "AdamW", "params": {"lr": 0.5}})",
       "'--config: optimizer.params.lr is 0.25' against '--config: optimizer.params.lr is 0.5'");
  told(R"("zero_optimization": {"stage": 2})", R"("zero_optimization": {"stage": 3})",
       "'--config: zero_optimization.stage is 2' against '--config: zero_optimization.stage is 3'");
  told(R"("fp16": {"enabled": false})", R"("scheduler": {"type": "WarmupLR"})",
       "'--config: scheduler.type is not in force' against '--config: scheduler.type is "
       "\"WarmupLR\"'");
}

TEST_CASE("zero-train: a process that cannot begin ends the other at once with its words",
          "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const bool usage = GENERATE(true, false);
  const int broken = GENERATE(0, 1);
  CAPTURE(usage, broken);
  std::vector<std::string> flags[2] = {Flags(folder, {}), Flags(folder, {})};
  flags[broken] =
      usage ? Flags(folder, {"--steps=many"}) : Flags(folder, {"--data", folder.File("absent")});
  auto processes = StartTwo(flags[0], flags[1], temporary);
  const Ended other = processes[1 - broken].Wait();
  const Ended own = processes[broken].Wait();
  INFO(own.err << other.err);
  CHECK(own.status == (usage ? 2 : 1));
  CHECK(other.status == 1);
  // Wrong flags are so on all ranks as a rule: of those only rank 0 speaks.
  const bool speaks = !usage || broken == 0;
  CHECK(LinesOf(own.err) == (speaks ? 1 : 0));
  CHECK(LinesOf(other.err) == 1);
  const std::string words = usage ? "--steps is 'many'" : "absent";
  if (speaks) CHECK_THAT(own.err, ContainsSubstring("zero-train: --") && ContainsSubstring(words));
  CHECK_THAT(other.err, ContainsSubstring("rank " + std::to_string(broken) + ": --") &&
                            ContainsSubstring(words));
}

TEST_CASE("zero-train: a flag that is wrong on all processes is told once", "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto flags = Flags(folder, {"--stepz=3"});
  auto processes = StartTwo(flags, flags, temporary);
  std::string told;
  for (Process& process : processes) {
    const Ended ended = process.Wait();
    CHECK(ended.status == 2);
    told += ended.err;
  }
  CHECK(told == "zero-train: unknown flag '--stepz'; the nearest is --steps\n");
}

TEST_CASE("zero-train: a failure on one process ends both with status 1 and one line",
          "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto flags = Flags(folder, {"--metrics", "/dev/full"});
  auto processes = StartTwo(flags, flags, temporary);
  CheckBothFail(processes, "/dev/full");
}

TEST_CASE("zero-train: a process that is killed is named on the other", "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto flags = Flags(folder, {"--steps=1000000", "--metrics", folder.File("m.jsonl")});
  auto processes = StartTwo(flags, flags, temporary);
  const auto steps = [&] {
    const std::string text = ReadFile(folder.File("m.jsonl"));
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(test::Soon([&] { return steps() > 3; }));
  processes[1].Signal(SIGKILL);
  CHECK(processes[1].Wait().signal == SIGKILL);
  const Ended ended = processes[0].Wait();
  INFO(ended.err);
  CHECK(ended.status == 1);
  CHECK(LinesOf(ended.err) == 1);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1 is gone"));
}

TEST_CASE("zero-train: flags and variables that contradict a launcher are refused", "[programs]") {
  const TrainingFolder folder;
  const TemporaryFolder temporary;
  const auto refused = [&](const std::vector<std::string>& more,
                           std::map<std::string, std::string> variables, const std::string& words) {
    const Ended ended = Process(kTrain, Flags(folder, more), variables, temporary).Wait();
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK(LinesOf(ended.err) == 1);
    CHECK_THAT(ended.err, ContainsSubstring(words));
  };
  const std::map<std::string, std::string> two = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  refused({"--ranks=3"}, two, "--ranks is 3, but WORLD_SIZE is 2; leave it out");
  std::map<std::string, std::string> torchrun = two;
  torchrun["TORCHELASTIC_RUN_ID"] = "none";
  refused({"--ranks=3"}, torchrun, "--ranks is 3, but torchrun started 2 processes");
  refused({"--compare_stages"}, two, "--compare_stages");
  refused({}, {{"RANK", "0"}}, "WORLD_SIZE is not set");
  std::map<std::string, std::string> stale = two;
  stale["WORLD_SIZE"] = "1";
  stale["OMPI_COMM_WORLD_RANK"] = "0";
  stale["OMPI_COMM_WORLD_SIZE"] = "2";
  for (const char* program : {"/zero-sample", "/zero-bench"}) {
    const Ended ended = Process(std::string(ZERO_PROGRAMS) + program,
                                {program[6] == 's' ? "--model=x" : "stages"}, two, temporary)
                            .Wait();
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("one of 2 processes (WORLD_SIZE)"));
  }
  refused({}, stale, "WORLD_SIZE is 1, but OMPI_COMM_WORLD_SIZE is 2");
}

TEST_CASE("zero-bench: a port that is taken is named with its flag at once", "[programs][bench]") {
  const int port = test::FreePort();
  const auto addresses = Resolve("127.0.0.1", port, absl::Minutes(1));
  REQUIRE(addresses.ok());
  const SocketOrErrno other = Listen(addresses->front());
  REQUIRE(other.error == 0);
  const std::string text = std::to_string(port);
  const double start = test::Seconds();
  const Outcome outcome = RunProgram("zero-bench", {"collectives", "--group=gloo", "--port", text});
  CHECK(test::Seconds() - start < 20);
  INFO(outcome.err);
  CHECK(outcome.status == 1);
  CHECK(LinesOf(outcome.err) == 1);
  CHECK_THAT(outcome.err, ContainsSubstring("--port " + text + " cannot be used"));
}

}  // namespace
}  // namespace zero::programs
