#include "examples/train/schedule.h"

#include "tests/catch.h"

namespace zero::programs {
namespace {

TEST_CASE("MakeSchedule: the rate rises in a line and then does what its kind says") {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    CAPTURE(kind);
    const Schedule schedule = train::MakeSchedule(kind, 0.5, 4, 9);
    CHECK(schedule(1) == 0.125);
    CHECK(schedule(3) == 0.375);
    CHECK(schedule(4) == 0.5);
  }
  CHECK(train::MakeSchedule("constant", 0.5, 4, 9)(1000) == 0.5);
  const Schedule linear = train::MakeSchedule("linear", 0.5, 4, 9);
  CHECK(linear(7) == 0.25);
  CHECK(linear(9) == Approx(0.5 / 6));
  CHECK(linear(11) == 0);
  const Schedule cosine = train::MakeSchedule("cosine", 0.5, 4, 9);
  CHECK(cosine(7) == Approx(0.25));
  CHECK(cosine(9) > 0);
  CHECK(cosine(100) == Approx(0).margin(1e-15));
  CHECK(train::MakeSchedule("constant", 0.5, 0, 9)(1) == 0.5);
}

}  // namespace
}  // namespace zero::programs
