#include "tests/repository/include_rules.h"

#include "tests/catch.h"
#include "tests/repository/planted_tree.h"
#include "tests/repository/source_tree.h"

namespace zero::repository {
namespace {

using Findings = std::vector<std::string>;

TEST_CASE("Includes: every include points to the same or a lower floor") {
  const Findings findings = FindUpwardIncludes(ZERO_SOURCE_DIR);
  INFO(Joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("Includes: only device names CUDA and only collectives names NCCL and Gloo") {
  const Findings findings = FindVendorNames(ZERO_SOURCE_DIR);
  INFO(Joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("Includes: a planted upward include is reported with file and line") {
  PlantedTree tree;
  tree.Add("device/a.h", "// text\n#include \"device/b.h\"\n#include \"zero/plan.h\"\n");
  tree.Add("kernels/a.cc", "#include \"device/a.h\"\n#include <io/x.h>\n#include <vector>\n");
  tree.Add("io/a.cc", "  #  include \"../zero/x.h\"\n");
  tree.Add("zero/a.cc", "#include \"offload/a.h\"\n#include \"absl/status/status.h\"\n");
  tree.Add("offload/a.cc", "/*\n#include \"zero/a.h\"\n*/ // #include \"zero/a.h\"\n");
  tree.Add("examples/a.cc", "#include \"zero/a.h\"\n#include \"bench/a.h\"\n");
  tree.Add("tests/zero/a.cc", "#include \"zero/a.h\"\n#include \"bench/a.h\"\n");
  tree.Add("zero/build/a.cc", "#include \"tests/a.h\"\n");
  CHECK(FindUpwardIncludes(tree.root()) ==
        Findings{"device/a.h:3: device includes zero/plan.h, which is not on a lower floor",
                 "kernels/a.cc:2: kernels includes io/x.h, which is not on a lower floor",
                 "io/a.cc:1: includes ../zero/x.h: write it from the root",
                 "examples/a.cc:2: examples includes bench/a.h, which is not on a lower floor"});
}

TEST_CASE("Includes: a planted vendor name is reported, one in a comment or string is not") {
  PlantedTree tree;
  tree.Add("device/a.cc", "#include <cuda_runtime.h>\nint n = cudaMalloc(p, 1);\n");
  tree.Add("kernels/a.cu", "cudaStream_t stream;\n");
  tree.Add("kernels/a.cc", "// cudaMalloc\nauto s = \"cudaMalloc(\"; int cudable = 1'000;\n");
  tree.Add("zero/a.cc", "#include <cuda.h>\n  cudaEventQuery(e);\n#include \"nccl.h\"\n");
  tree.Add("collectives/a.cc", "ncclComm_t c; gloo::Context d;\n#include \"gloo/x.h\"\n");
  tree.Add("offload/a.cc", "gloo::Context d;\nncclComm_t c;\n");
  tree.Add("examples/llama/a.h", "#include <cublasLt.h>\n");
  tree.Add("examples/train/a.h", "#include <cublasLt.h>\n");
  CHECK(FindVendorNames(tree.root()) ==
        Findings{"offload/a.cc:1: names NCCL or Gloo, which only collectives/ may",
                 "offload/a.cc:2: names NCCL or Gloo, which only collectives/ may",
                 "zero/a.cc:1: names the CUDA runtime, which only device/ may",
                 "zero/a.cc:2: names the CUDA runtime, which only device/ may",
                 "zero/a.cc:3: names NCCL or Gloo, which only collectives/ may",
                 "examples/train/a.h:1: names cuBLASLt, which only examples/llama/ may"});
}

TEST_CASE("Includes: comments are stripped over lines and from behind literals") {
  const std::vector<std::string> lines = {"a(\"//\"); // b", "c /* d",
                                          "e */ f('\"', \"\\\"/*\") /* g */ h",
                                          "R\"x(// \" )\" )x\" // i"};
  CHECK(StripComments(lines, true) == std::vector<std::string>{"a(\"//\"); ", "c  ",
                                                               " f('\"', \"\\\"/*\")   h",
                                                               "R\"x(// \" )\" )x\" "});
  CHECK(StripComments(lines, false) ==
        std::vector<std::string>{"a(\"\"); ", "c  ", " f('', \"\")   h", "R\"x()x\" "});
}

}  // namespace
}  // namespace zero::repository
