// The pure parts: layout, reduction plan, gather schedule, initialiser.
#include <cmath>
#include <set>

#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"
#include "zero/gather_schedule.h"
#include "zero/initializer.h"

namespace zero::test {

TEST_CASE("Layout: parameters and gaps cover each segment once, aligned, for any world size",
          "[zero][layout]") {
  for (const std::string& name : ModelNames()) {
    for (const int ranks : {1, 2, 3, 5, 8, 64}) {
      const Model model = MakeModel(name, DType::kBF16);
      const auto layout = MakeLayout(model, ranks);
      REQUIRE_OK(layout.status());
      for (size_t u = 0; u < model.units.size(); ++u) {
        const UnitLayout& unit = layout->units[u];
        std::vector<std::vector<int>> covered;
        for (const Segment& segment : unit.segments) {
          CHECK(segment.elements % (ranks * 128) == 0);
          CHECK(segment.slice * ranks == segment.elements);
          covered.emplace_back(static_cast<size_t>(segment.elements), 0);
        }
        for (size_t p = 0; p < unit.parameters.size(); ++p) {
          const Run& run = unit.parameters[p];
          CHECK(run.first % 64 == 0);
          CHECK(run.count == ElementCount(model.units[u].parameters[p]));
          CHECK(unit.segments[run.segment].dtype == model.units[u].parameters[p].dtype);
          CHECK(unit.segments[run.segment].trainable == model.units[u].parameters[p].trainable);
          for (int64_t i = 0; i < run.count; ++i) ++covered[run.segment][run.first + i];
        }
        for (const Run& gap : unit.gaps) {
          for (int64_t i = 0; i < gap.count; ++i) ++covered[gap.segment][gap.first + i];
        }
        for (const auto& segment : covered) {
          CHECK(std::all_of(segment.begin(), segment.end(), [](int n) { return n == 1; }));
        }
      }
    }
  }
}

TEST_CASE("ReductionPlan: groups hold neighbours in backward order, and fit slot and call",
          "[zero][layout]") {
  for (const std::string& name : ModelNames()) {
    for (const int ranks : {1, 3, 8}) {
      for (const int64_t bucket : {1, 2000, 1 << 30}) {
        const Model model = MakeModel(name, DType::kBF16);
        const auto layout = MakeLayout(model, ranks);
        REQUIRE_OK(layout.status());
        const ReductionPlan plan = MakeReductionPlan(model, *layout, bucket);
        std::vector<int> order;
        int last_shared_slot = -1;
        for (const ReductionGroup& group : plan.groups) {
          int64_t bytes = 0;
          for (int u : group.units) {
            order.push_back(u);
            bytes += layout->units[u].written_bytes();
          }
          CHECK(bytes <= plan.slot_bytes[group.slot]);
          if (group.units.size() > 1) CHECK(bytes <= plan.call_bytes);
          if (model.units[group.units[0]].resident) continue;
          CHECK(group.slot != last_shared_slot);
          last_shared_slot = group.slot;
        }
        std::vector<int> wanted;
        for (int u = static_cast<int>(model.units.size()) - 1; u >= 0; --u) {
          if (layout->units[u].trainable()) wanted.push_back(u);
        }
        CHECK(order == wanted);
      }
    }
  }
}

TEST_CASE("ReductionPlan: a bucket larger than the model makes few calls, a small one none larger",
          "[zero][layout]") {
  const Model model = SimpleModel(8, 128, DType::kBF16);
  const auto layout = MakeLayout(model, 1);
  REQUIRE_OK(layout.status());
  Model with_large = model;
  with_large.units.push_back(SimpleModel(1, 512).units[0]);
  with_large.units.back().name = "large";
  with_large.units.back().parameters[0].name = "large.w";
  with_large.units.back().parameters[0].dtype = DType::kBF16;
  const auto large_layout = MakeLayout(with_large, 1);
  REQUIRE_OK(large_layout.status());
  // Four units of 128 fill a slot as large as the unit of 512.
  CHECK(MakeReductionPlan(with_large, *large_layout, 1 << 30).groups.size() == 3);
  CHECK(MakeReductionPlan(with_large, *large_layout, 1).groups.size() == 9);
}

TEST_CASE("GatherSchedule: forward and backward gather each unit ahead of its use, and no more",
          "[zero][layout]") {
  for (const int prefetch : {0, 1, 2, 10}) {
    const Model model = SimpleModel(5, 1);
    GatherSchedule schedule(model, prefetch);
    const int slots = std::min(prefetch + 1, 5);
    CHECK(schedule.shared_slots() == slots);
    schedule.BeginPass();
    int gathers = 0;
    std::set<int> live;
    for (int i = 0; i < 10; ++i) {
      const int u = i < 5 ? i : 9 - i;
      const auto gathered = schedule.Acquire(u);
      REQUIRE_OK(gathered.status());
      for (int g : *gathered) {
        for (int other = 0; other < 5; ++other) {
          if (schedule.slot_of(other) == schedule.slot_of(g)) live.erase(other);
        }
        live.insert(g);
      }
      gathers += static_cast<int>(gathered->size());
      CHECK(live.count(u) == 1);
      if (i < 4 && prefetch > 0) CHECK(live.count(u + 1) == 1);
      if (i > 5 && i < 9 && prefetch > 0) CHECK(live.count(u - 1) == 1);
      schedule.Release(u);
    }
    CHECK(gathers == 5 + 5 - slots);
  }
}

TEST_CASE("GatherSchedule: a unit that is held is not evicted by a prefetch", "[zero][layout]") {
  GatherSchedule schedule(SimpleModel(4, 1), 1);
  schedule.BeginPass();
  REQUIRE_OK(schedule.Acquire(0).status());  // gathers 0 and 1
  const auto next = schedule.Acquire(1);     // 2 would take the slot of 0
  REQUIRE_OK(next.status());
  CHECK(next->empty());
  schedule.Release(0);
  const auto late = schedule.Acquire(2);
  REQUIRE_OK(late.status());
  CHECK(*late == std::vector<int>{2});  // 3 waits: 1 is held
}

TEST_CASE("NormalAt: is the same for every way of asking, and normal", "[zero]") {
  std::vector<float> values(100'000);
  FillNormal(1, "w", 0, 1, absl::MakeSpan(values));
  std::vector<float> piece(1000);
  FillNormal(1, "w", 12'345, 2, absl::MakeSpan(piece));
  for (int i = 0; i < 1000; ++i) CHECK(piece[i] == 2 * values[12'345 + i]);
  for (int i = 0; i < 100'000; ++i) REQUIRE(NormalAt(1, "w", i) == values[i]);
  ThreadPool pool(3);
  Parameter matrix;
  matrix.name = "w";
  matrix.shape = {1000, 100};
  std::vector<float> shared(99'999);
  REQUIRE_OK(NormalInitializer(
      1, [](const Parameter&) { return 1.0f; }, &pool)(matrix, 1, absl::MakeSpan(shared)));
  CHECK(std::equal(shared.begin(), shared.end(), values.begin() + 1));
  CHECK(NormalAt(2, "w", 777) != values[777]);
  CHECK(NormalAt(1, "v", 777) != values[777]);
  double mean = 0, variance = 0, fourth = 0;
  for (float v : values) mean += v / 1e5;
  for (float v : values) variance += (v - mean) * (v - mean) / 1e5;
  for (float v : values) fourth += std::pow(v, 4) / 1e5;
  CHECK(std::abs(mean) < 0.015);         // 4.7 standard deviations of the mean
  CHECK(std::abs(variance - 1) < 0.02);  // 4.5
  CHECK(std::abs(fourth - 3) < 0.15);    // 4.8
}

TEST_CASE("NormalAt: values never change", "[zero]") {
  // Frozen: a change would give every model other initial weights.
  CHECK(NormalAt(0, "model.embed_tokens.weight", 0) == Approx(-0.39997685).epsilon(1e-6));
  CHECK(NormalAt(42, "model.embed_tokens.weight", int64_t{1} << 40) ==
        Approx(-0.622530758).epsilon(1e-6));
}

}  // namespace zero::test
