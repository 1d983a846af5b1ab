#include "tests/repository/forbidden.h"

#include <fstream>

#include "tests/catch.h"
#include "tests/repository/planted_tree.h"
#include "tests/repository/source_tree.h"

namespace zero::repository {
namespace {

using Findings = std::vector<std::string>;

// What CMake was told to install.
Findings PublicHeaders() {
  std::ifstream in(ZERO_PUBLIC_HEADERS_FILE);
  Findings headers;
  for (std::string line; std::getline(in, line);) headers.push_back(line);
  return headers;
}

TEST_CASE("Forbidden: nothing is compiled for the machine that compiles it") {
  const Findings findings = FindNativeBuilds(ZERO_SOURCE_DIR);
  INFO(Joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("Forbidden: the library has no notes of unfinished work") {
  const Findings findings = FindUnfinishedMarks(ZERO_SOURCE_DIR);
  INFO(Joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("Forbidden: the library never ends the process and never prints") {
  const Findings findings = FindExitsAndPrints(ZERO_SOURCE_DIR);
  INFO(Joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("Forbidden: public headers include no header that is not installed") {
  REQUIRE(!PublicHeaders().empty());
  const Findings findings = FindPrivateIncludes(ZERO_SOURCE_DIR, PublicHeaders());
  INFO(Joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("Forbidden: planted offences are reported with file and line") {
  PlantedTree tree;
  const std::string flag = std::string("-march=") + "native";
  tree.Add("CMakeLists.txt", "project(x)\nadd_compile_options(" + flag + ")\n");
  tree.Add("scripts/build", "g++ " + flag + "\n");
  tree.Add("README.md", flag + "\n");
  CHECK(FindNativeBuilds(tree.root()) ==
        Findings{"CMakeLists.txt:2: " + flag, "scripts/build:1: " + flag});

  tree.Add("io/a.cc", "// TODO: more\nint TODOS;\n");
  tree.Add("tests/a.cc", "// TODO: allowed here\n");
  CHECK(FindUnfinishedMarks(tree.root()) == Findings{"io/a.cc:1: TODO"});

  tree.Add("zero/a.cc",
           "group->abort();\nstd::abort();\nsnprintf(b, 1, \"printf(\");  // exit(1)\n"
           "std::cout << 1;\n  exit (1);\nprintf(\"x\");\nint exit = 0;\n");
  CHECK(FindExitsAndPrints(tree.root()) == Findings{"zero/a.cc:2: abort", "zero/a.cc:4: cout",
                                                    "zero/a.cc:5: exit", "zero/a.cc:6: printf"});

  tree.Add("zero/a.h", "#include \"device/a.h\"\n#include \"io/b.h\"\n#include \"absl/x.h\"\n");
  CHECK(FindPrivateIncludes(tree.root(), {"zero/a.h", "device/a.h"}) ==
        Findings{"zero/a.h:2: a public header includes io/b.h, which is not installed"});
}

}  // namespace
}  // namespace zero::repository
