#include <cmath>
#include <memory>

#include "device/host_device.h"
#include "kernels/decide.h"
#include "kernels/kernels.h"
#include "tests/catch.h"
#include "tests/golden/golden.h"

namespace zero::golden {
namespace {

using Json = nlohmann::json;

// Norm and coefficient as a step of one rank and one micro-batch finds them.
void Decide(const Stream& stream, std::vector<float> gradient, double limit, StepRecord* record,
            StepScalars* scalars) {
  const auto n = static_cast<int64_t>(gradient.size());
  std::vector<NormPartial> scratch(static_cast<size_t>(NormChunks(n)));
  NormPartial part;
  REQUIRE_OK(Norm(stream, gradient.data(), DType::kF32, n, scratch.data(), &part));
  REQUIRE_OK(stream.Synchronize());
  RankNorm rank;
  rank.sum_of_squares = part.sum_of_squares;
  StepRow row;
  row.count = 1;
  row.clip_norm = limit;
  const GroupScalars row_group;
  GroupScalars group;
  StepState state;
  DecideArguments a;
  a.ranks = &rank;
  a.rank_count = 1;
  a.rows = &row;
  a.row_groups = &row_group;
  a.row_count = 1;
  a.group_count = 1;
  a.state = &state;
  a.scalars = scalars;
  a.groups = &group;
  a.record = record;
  REQUIRE_OK(DecideStep(stream, a));
  REQUIRE_OK(stream.Synchronize());
}

TEST_CASE("Clipping: norms and clipped gradients are those of clip_grad_norm_") {
  HostDevice device;
  const auto stream = device.CreateStream("golden");
  REQUIRE_OK(stream.status());
  const Json cases = Read("clipping.json")["cases"];
  CHECK(cases.size() >= 20);
  for (const Json& one : cases) {
    INFO(one.dump());
    std::vector<float> before, after;
    for (size_t i = 0; i < one["before"].size(); ++i) {
      for (const float g : Floats(one["before"][i])) before.push_back(g);
      for (const float g : Floats(one["after"][i])) after.push_back(g);
    }
    const double limit = one["limit"];
    StepRecord record;
    StepScalars scalars;
    Decide(**stream, before, limit, &record, &scalars);
    const auto norm = static_cast<double>(Floats(one["norm"]).front());
    CHECK(std::abs(record.gradient_norm - norm) <= 1e-6 * norm);
    CHECK((scalars.clip_coefficient < 1) == (norm > limit));
    double clipped_squares = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const float clipped = before[i] / scalars.divisor * scalars.clip_coefficient;
      CHECK(UlpsBetween(clipped, after[i]) <= 4);
      clipped_squares += static_cast<double>(clipped) * static_cast<double>(clipped);
    }
    // The limit itself, but for the 1e-6 that the formula adds to the norm.
    if (norm > limit) {
      CHECK(std::sqrt(clipped_squares) == Approx(limit).epsilon(1e-6 + 1e-6 / norm).margin(0));
    }
  }
}

}  // namespace
}  // namespace zero::golden
