#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {
namespace {

// Rows whose first words are those of `start`.
int CountRows(const std::string& table, const std::string& start) {
  std::istringstream lines(table);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::istringstream wanted(start);
    bool same = true;
    for (std::string want, word; wanted >> want;) same = words >> word && word == want && same;
    if (same) ++count;
  }
  return count;
}

TEST_CASE("zero-bench: collectives gives a checked row for each collective and size",
          "[programs][bench]") {
  const Outcome outcome =
      RunProgram("zero-bench", {"collectives", "-b1k", "-e", "4K", "-f", "4", "-n", "1", "-w", "0",
                                "--ngpus", "3", "-d", "bfloat16", "--repeats", "1"});
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  for (const std::string row :
       {"all_gather 1020 170 bfloat16 none", "alltoall 4092 682 bfloat16 none",
        "reduce_scatter 4092 682 bfloat16 sum", "all_reduce 1020 170 bfloat16 sum"}) {
    INFO(row << " in\n" << outcome.out);
    CHECK(CountRows(outcome.out, row) == 1);
  }
}

TEST_CASE("zero-bench: stages and kernels verify what they time", "[programs][bench]") {
  const Outcome stages =
      RunProgram("zero-bench", {"stages", "--elements", "4096", "--units", "2", "--repeats", "1"});
  INFO(stages.err);
  CHECK(stages.status == 0);
  const Outcome kernels =
      RunProgram("zero-bench", {"kernels", "--elements", "4096", "--repeats", "1"});
  INFO(kernels.err);
  CHECK(kernels.status == 0);
  CHECK(kernels.out.find("bit for bit") != std::string::npos);
}

TEST_CASE("zero-bench: optimizer has a verified row for each optimizer and kind of master",
          "[programs][bench]") {
  const Outcome outcome =
      RunProgram("zero-bench", {"optimizer", "--elements", "4096", "--repeats", "1"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("bit for bit") &&
                              ContainsSubstring("% triad: speed of an update as a share"));
  for (const std::string optimizer : {"adamw", "adam", "sgd", "lion"}) {
    for (const char* master :
         {" fp32 + bf16 weight", " fp32 + fp16 weight", " fp32 weight", " split bf16", " none,"}) {
      CHECK(CountRows(outcome.out, optimizer + master) == 1);
    }
  }
}

TEST_CASE("zero-bench: offload has a verified row for each kind of gradient and master",
          "[programs][bench]") {
  const Outcome outcome =
      RunProgram("zero-bench", {"offload", "--elements", "1100000", "--repeats", "1"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("bit for bit"));
  for (const char* row :
       {"fp32 fp32 30", "bf16 fp32 28", "fp32 split 28", "bf16 split 26", "triad, streamed 12"}) {
    INFO(row);
    CHECK(CountRows(outcome.out, row) == 1);
  }
}

// What a part of zero-bench offload prints that works on a disk; nothing where there is no
// io_uring.
std::optional<std::string> MeasureOnDisk(const std::string& part) {
  const TemporaryFolder folder;
  const Outcome outcome = RunProgram(
      "zero-bench", {"offload", "--part", part, "--elements", "65536", "--units", "2", "--repeats",
                     "1", "--piece_elements", "8192", "--folder", folder.path()});
  INFO(outcome.out << outcome.err);
  CHECK(folder.Names().empty());
  if (outcome.status == 1) {
    CHECK_THAT(outcome.err, ContainsSubstring("io_uring"));
    return std::nullopt;
  }
  CHECK(outcome.status == 0);
  return outcome.out;
}

TEST_CASE("zero-bench: offload measures steps on a disk and leaves nothing there",
          "[programs][bench]") {
  const std::optional<std::string> out = MeasureOnDisk("disk");
  if (!out.has_value()) return;
  // Records of 16 bytes a parameter and weights of 2: two units stay live between the passes, so
  // that they are read once.
  CHECK_THAT(*out, ContainsSubstring("a step reads 1.2 MB and writes 1.2 MB: "));
}

TEST_CASE("zero-bench: offload measures states on a disk and leaves nothing there",
          "[programs][bench]") {
  const std::optional<std::string> out = MeasureOnDisk("state");
  if (!out.has_value()) return;
  for (const char* row : {"Write of masters, weights 0.0 0.4 ", "Read of moments 0.3 0.0 ",
                          "SaveCheckpoint 0.8 0.8 ", "LoadCheckpoint 0.8 0.9 "}) {
    INFO(row);
    CHECK(CountRows(*out, row) == 1);
  }
}

TEST_CASE("zero-bench: offload measures steps at the end of a link for each length of compute",
          "[programs][bench]") {
  const std::string checks = GENERATE("true", "false");
  const Outcome outcome =
      RunProgram("zero-bench",
                 {"offload", "--part", "link", "--elements", "65536", "--units", "4", "--repeats",
                  "1", "--link_gbps", "0.05", "--gradients", "bf16", "--check_overflow", checks});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring(checks == "true" ? "overlap with forward only"
                                                             : "units step during backward"));
  CHECK_THAT(outcome.out, ContainsSubstring("without compute: gradients out") &&
                              ContainsSubstring("overlap: 1 - (step - compute)"));
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 13);
}

TEST_CASE(
    "zero-bench: what this machine has no memory for is one line before anything is allocated",
    "[programs][bench]") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"stages", "--elements", "1000000000000"}, "4 ranks x "},
      {{"kernels", "--elements", "10000000000000"}, "memory"},
      {{"offload", "--elements", "1000000000000"}, "1 rank x "},
      {{"collectives", "-b", "1024G", "-e", "1024G"}, "memory"}};
  for (const auto& [arguments, wanted] : cases) {
    const Outcome outcome = RunProgram("zero-bench", arguments);
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(wanted));
  }
}

TEST_CASE("zero-bench: a file that cannot be written is refused before anything is measured",
          "[programs][bench]") {
  for (const char* subcommand : {"collectives", "kernels", "offload", "optimizer", "stages"}) {
    const Outcome outcome = RunProgram("zero-bench", {subcommand, "--json", "/proc/zero/a"});
    INFO(subcommand << ": " << outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("--json: '/proc/zero/a' cannot be written: No such"));
  }
}

TEST_CASE("zero-bench: help is printed whichever way it is asked for", "[programs][bench]") {
  for (const char* help : {"--help", "-h", "help"}) {
    const Outcome outcome = RunProgram("zero-bench", {help});
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("collectives  "));
  }
}

TEST_CASE("zero-bench: a wrong flag ends with one line that names it", "[programs][bench]") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"collectives", "-b", "7X"}, "--minbytes is '7X'"},
      {{"collectives", "-b", "2M", "-e", "1M"}, "--minbytes 2M is more than --maxbytes 1M"},
      {{"collectives", "-b", "1", "-e", "2"}, "--maxbytes 2 is less than an element"},
      {{"collectives", "-d", "half"}, "float or bfloat16"},
      {{"collectives", "-g", "0"}, "--ranks is '0'"},
      {{"collectives", "-o", "sum"}, "unknown flag '-o'; of nccl-tests there are -b -e"},
      {{"collectives", "-b7X"}, "--minbytes is '7X'"},
      {{"collectives", "--ngpus=0"}, "--ranks is '0'"},
      {{"--ranks", "2"}, "unknown subcommand '--ranks'"},
      {{"collective"}, "'collective'; it must be one of checkpoint, collectives"}};
  for (const auto& [arguments, wanted] : cases) {
    const Outcome outcome = RunProgram("zero-bench", arguments);
    INFO(wanted << " in\n" << outcome.err);
    CHECK(outcome.status == 2);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK(outcome.err.find(wanted) != std::string::npos);
  }
}

}  // namespace
}  // namespace zero::programs
