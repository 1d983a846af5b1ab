#include "tests/repository/document.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/repository/planted_tree.h"
#include "tests/repository/registered_tests.h"
#include "tests/repository/source_tree.h"

namespace zero::repository {
namespace {

using Findings = std::vector<std::string>;

TEST_CASE("Documents: every path and test that they name exists") {
  const std::string name = GENERATE("ARCHITECTURE.md", "README.md", "CONTRIBUTING.md");
  const auto files =
      ReadTree(ZERO_SOURCE_DIR, "", [&](const std::string& path) { return path == name; });
  REQUIRE(files.size() == 1);
  const std::vector<Span> spans = CodeSpans(files[0].lines);
  const bool names_a_path = std::any_of(
      spans.begin(), spans.end(), [](const Span& span) { return !PathIn(span.text).empty(); });
  CHECK(names_a_path);
  const Findings missing = FindMissing(files[0].path, spans, ZERO_SOURCE_DIR, RegisteredTests());
  INFO(Joined(missing));
  CHECK(missing.empty());
}

TEST_CASE("Documents: a path or test that does not exist is reported with its line") {
  PlantedTree tree;
  tree.Add("device/stream.h", "");
  tree.Add("kernels/adamw_math.h", "");
  const std::vector<Span> spans = CodeSpans({
      "See `device/stream.h`, `device/`, `kernels/*_math.h` and `device/gone.h`.",
      "Not paths: `N/2`, `absl/status`, and `zero_test: One:",
      "  two words` is a test, `zero_test: Gone` is none, `zero: x` is text.",
      "```",
      "`device/fenced.h`",
      "```",
      "An open ` mark ends with the paragraph.",
      "",
      "`io/*.h` and `scripts/run.sh --fast`.",
  });
  CHECK(FindMissing("A.md", spans, tree.root(), {"zero_test:One: two words"}) ==
        Findings{"A.md:1: `device/gone.h` is no path of the project",
                 "A.md:3: `zero_test: Gone` is no test that ctest -N lists",
                 "A.md:9: `io/*.h` is no path of the project",
                 "A.md:9: `scripts/run.sh --fast` is no path of the project"});
}

}  // namespace
}  // namespace zero::repository
