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
    {"collectives", "the collectives of a step, with the flags of nccl-tests", RunCollectives},
    {"kernels", "the kernels of a step, against the speed of the memory", RunKernels},
    {"stages", "stages 0 to 3 side by side: bytes, wire and time of a step", RunStages},
};

void PrintHelp() {
  std::printf("usage: zero-bench SUBCOMMAND [FLAGS]\n\nsubcommands:\n");
  for (const Entry& entry : kSubcommands) std::printf("  %-12s %s\n", entry.name, entry.meaning);
  std::printf("\nzero-bench SUBCOMMAND --help lists its flags.\n");
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fprintf(stderr, "zero-bench: no subcommand; see zero-bench --help\n");
    return 2;
  }
  if (arguments[0] == "--help") {
    PrintHelp();
    return 0;
  }
  for (const Entry& entry : kSubcommands) {
    if (arguments[0] != entry.name) continue;
    const absl::Status status = entry.run({arguments.begin() + 1, arguments.end()});
    if (status.ok()) return 0;
    return support::Fail(
        std::string("zero-bench ") + entry.name, status,
        absl::IsInvalidArgument(status) ? support::kExitUsage : support::kExitFailure);
  }
  std::fprintf(stderr, "zero-bench: unknown subcommand '%s'; see zero-bench --help\n",
               arguments[0].c_str());
  return 2;
}

}  // namespace
}  // namespace zero::bench

int main(int argc, char** argv) {
  return zero::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
