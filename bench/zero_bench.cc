// zero-bench: measures the library on this machine.
#include <cstdio>
#include <string>
#include <vector>

#include "bench/subcommand.h"
#include "examples/support/program.h"

namespace zero::bench {
namespace {

struct Entry {
  const char* name;
  const char* meaning;
  Subcommand run;
};
constexpr Entry kSubcommands[] = {
    {"checkpoint", "checkpoints saved and loaded, against plain writes and reads of the same bytes",
     RunCheckpoint},
    {"collectives", "the collectives of a step, with the flags of nccl-tests", RunCollectives},
    {"kernels", "the kernels of a step, against the speed of the memory", RunKernels},
    {"offload", "what is offloaded, against the speed of memory, disk and link", RunOffload},
    {"optimizer", "the update by optimizer and kind of master, against the speed of the memory",
     RunOptimizer},
    {"stages", "stages 0 to 3 side by side: bytes, wire and time of a step", RunStages},
};

void PrintHelp() {
  std::printf("usage: zero-bench SUBCOMMAND [FLAGS]\n\nsubcommands:\n");
  for (const Entry& entry : kSubcommands) std::printf("  %-12s %s\n", entry.name, entry.meaning);
  std::printf("\nzero-bench SUBCOMMAND --help lists its flags.\n");
}

int Main(const std::vector<std::string>& arguments) {
  std::string names;
  for (const Entry& entry : kSubcommands)
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  const auto wrong = [&](const std::string& what) {
    return support::Fail("zero-bench",
                         absl::InvalidArgumentError(what + "; it must be one of " + names),
                         support::kExitUsage);
  };
  if (arguments.empty()) return wrong("no subcommand");
  for (const char* help : {"--help", "-h", "help"}) {
    if (arguments[0] != help) continue;
    PrintHelp();
    return 0;
  }
  const absl::Status alone = support::CheckAlone();
  if (!alone.ok()) return support::Fail("zero-bench", alone, support::kExitUsage);
  for (const Entry& entry : kSubcommands) {
    if (arguments[0] != entry.name) continue;
    const absl::Status status = entry.run({arguments.begin() + 1, arguments.end()});
    if (status.ok()) return 0;
    return support::Fail(
        std::string("zero-bench ") + entry.name, status,
        absl::IsInvalidArgument(status) ? support::kExitUsage : support::kExitFailure);
  }
  return wrong("unknown subcommand '" + arguments[0] + "'");
}

}  // namespace
}  // namespace zero::bench

int main(int argc, char** argv) {
  return zero::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
