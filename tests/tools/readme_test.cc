// The README shows what the programs print and what the example says.
#include <fstream>
#include <sstream>

#include "tests/catch.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(std::string(ZERO_SOURCE_DIR "/") + path);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("README: holds the minimal program as it is", "[tools]") {
  CHECK_THAT(ReadText("README.md"),
             ContainsSubstring("```cpp\n" + ReadText("examples/minimal/minimal.cc") + "```\n"));
}

TEST_CASE("README: holds the help of zero-train as it is printed", "[tools]") {
  const Outcome help = RunProgram("zero-train", {"--help"});
  REQUIRE(help.status == 0);
  CHECK_THAT(ReadText("README.md"), ContainsSubstring("```\n" + help.out + "```\n"));
}

TEST_CASE("README: holds the plans of models as they are printed", "[tools]") {
  const auto holds = [](const std::string& model, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", ZERO_SOURCE_DIR "/" + model});
    const Outcome plan = RunProgram("zero-plan", flags);
    REQUIRE(plan.status == 0);
    const std::string below_the_path = plan.out.substr(plan.out.find(": "));
    CHECK_THAT(ReadText("README.md"), ContainsSubstring(model + below_the_path + "```\n"));
  };
  holds("examples/models/demo", {"--ranks=4"});
  holds("examples/models/llama-7b",
        {"--ranks=8", "--offload_optimizer=cpu", "--offload_param=nvme"});
}

}  // namespace
}  // namespace zero::programs
