#include "tests/catch.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

TEST_CASE("zero-train --compare_stages: prints the stages side by side, as planned", "[programs]") {
  const TrainingFolder folder(GENERATE(false, true));
  const auto before = folder.Names();
  const Outcome outcome = folder.Train({"--ranks=4", "--compare_stages", "--repeats=2"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  CHECK(folder.Names() == before);
  for (const char* row :
       {"stage 0", "stage 3", "\nweights ", "\noptimizer_states ", "\nreduce_gradients ",
        "\nms per step ", "\nrelative  ", "every count of bytes is the plan's"}) {
    CHECK_THAT(outcome.out, ContainsSubstring(row));
  }
}

}  // namespace
}  // namespace zero::programs
