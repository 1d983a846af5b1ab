// zero-checkpoint: looks at checkpoints and weights, and makes the ones from the others.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "examples/support/program.h"
#include "tools/checkpoint_export.h"
#include "tools/checkpoint_import.h"
#include "tools/checkpoint_inspect.h"
#include "tools/json_output.h"

namespace zero::tools {
namespace {

struct Entry {
  const char* name;
  const char* path;  // stands for it in usage lines
  const char* meaning;
  std::unique_ptr<Subcommand> (*make)();
};
constexpr Entry kSubcommands[] = {
    {"inspect", "PATH", "shows and verifies a checkpoint, a model folder or a .safetensors file",
     MakeInspect},
    {"export", "CHECKPOINT", "makes a Hugging Face folder from a checkpoint", MakeExport},
    {"import", "FOLDER", "makes a checkpoint from a Hugging Face folder", MakeImport},
};

constexpr const char* kExits =
    "exit status: 0: all is well; 1: what was read is not sound, or it failed; 2: wrong usage\n";

std::string ProgramName(const Entry& entry) { return absl::StrCat("zero-checkpoint ", entry.name); }

void PrintHelp() {
  std::cout << "usage: zero-checkpoint SUBCOMMAND PATH [flags]\n\nsubcommands:\n";
  for (const Entry& entry : kSubcommands) {
    std::cout << "  " << entry.name << " " << entry.path
              << std::string(22 - std::string(entry.name).size() - std::string(entry.path).size(),
                             ' ')
              << entry.meaning << "\n";
  }
  std::cout << "\nzero-checkpoint SUBCOMMAND --help lists its flags.\n\n" << kExits;
}

int RunEntry(const Entry& entry, std::vector<std::string> arguments) {
  std::string path;
  if (!arguments.empty() && !absl::StartsWith(arguments[0], "-")) {
    path = arguments[0];
    arguments.erase(arguments.begin());
  }
  const std::unique_ptr<Subcommand> subcommand = entry.make();
  const bool json = AsksForJson(arguments);
  support::FlagTable flags;
  subcommand->AddFlags(flags);
  absl::Status usage = flags.Parse(arguments);
  if (usage.ok() && flags.help()) {
    std::cout << "usage: " << ProgramName(entry) << " " << entry.path << " [flags]\n"
              << flags.Help() << "\n"
              << kExits;
    return 0;
  }
  if (usage.ok() && path.empty()) {
    usage = absl::InvalidArgumentError(
        absl::StrCat(entry.path, " is missing; it comes right after '", entry.name, "'"));
  }
  if (usage.ok()) usage = support::CheckAlone();
  if (usage.ok()) usage = subcommand->Check();
  if (!usage.ok()) {
    if (json) PrintJsonError(usage);
    return support::Fail(ProgramName(entry), usage, support::kExitUsage);
  }
  const absl::Status status = subcommand->Run(path);
  if (!status.ok() && json && !subcommand->printed()) PrintJsonError(status);
  return status.ok() ? 0 : support::Fail(ProgramName(entry), status, support::kExitFailure);
}

int Main(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "" : arguments[0];
  if (first == "--help" || first == "-h" || first == "help") {
    PrintHelp();
    return 0;
  }
  std::string names;
  for (const Entry& entry : kSubcommands) {
    if (first == entry.name) return RunEntry(entry, {arguments.begin() + 1, arguments.end()});
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.name);
  }
  const std::string what =
      arguments.empty() ? "no subcommand" : absl::StrCat("unknown subcommand '", first, "'");
  const absl::Status usage =
      absl::InvalidArgumentError(absl::StrCat(what, "; it must be one of ", names, ", see --help"));
  if (AsksForJson(arguments)) PrintJsonError(usage);
  return support::Fail("zero-checkpoint", usage, support::kExitUsage);
}

}  // namespace
}  // namespace zero::tools

int main(int count, char** values) {
  return zero::tools::Main(std::vector<std::string>(values + 1, values + count));
}
