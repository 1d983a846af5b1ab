#include "kernels/decide.h"

#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

// Two ranks, two groups, schedule rows for the counts 5, 6 and 7; the next step is the sixth.
struct Decision {
  Decision() {
    state.applied = 5;
    state.loss_scale.scale = 4;
    ranks[0].sum_of_squares = 9 * 64.0;
    ranks[1].sum_of_squares = 16 * 64.0;
    for (int64_t i = 0; i < 3; ++i) {
      rows[i].count = 5 + i;
      rows[i].learning_rate = 0.1 * static_cast<double>(5 + i);
      rows[i].sqrt_bias_correction2 = 0.01f * static_cast<float>(5 + i);
      rows[i].beta1 = 0.9f + 0.01f * static_cast<float>(i);
      rows[i].one_minus_beta1 = 0.1f - 0.01f * static_cast<float>(i);
      for (int64_t g = 0; g < 2; ++g) {
        row_groups[2 * i + g].step_size = static_cast<float>(10 * (5 + i) + g);
      }
    }
  }

  void Run() {
    KernelRun run;
    DecideArguments a;
    a.ranks = run.On(ranks, 2);
    a.rank_count = 2;
    a.passes = 2;
    a.rows = run.On(rows, 3);
    a.row_groups = run.On(row_groups, 6);
    a.row_count = 3;
    a.group_count = 2;
    a.rule = rule;
    a.step = step;
    a.predivided = predivided;
    a.check_overflow = check_overflow;
    a.max_consecutive_skips = max_consecutive_skips;
    a.state = run.On(&state);
    a.scalars = run.On(&scalars);
    a.groups = run.On(groups, 2);
    a.record = run.On(&record);
    REQUIRE_OK(ahead ? RecordNorms(run.stream(), a) : DecideStep(run.stream(), a));
    run.Finish();
  }

  LossScaleRule rule;
  int64_t step = 1;
  double predivided = 1;
  int64_t max_consecutive_skips = 0;
  int32_t check_overflow = 1;
  bool ahead = false;  // it is decided, and only the norms are recorded
  RankNorm ranks[2];
  StepRow rows[3];
  GroupScalars row_groups[6];
  StepState state;
  StepScalars scalars;
  GroupScalars groups[2];
  StepRecord record;
};

TEST_CASE("DecideStep: the norm is unscaled and divided by ranks x micro-batches", "[kernels]") {
  Decision d;
  d.Run();
  // sqrt((9 + 16) x 64) / (loss scale 4 x passes 2)
  CHECK(d.record.gradient_norm == 5.0);
  CHECK(d.scalars.divisor == 8.0f);
  CHECK(d.record.loss_weight == 2.0);
  CHECK(d.record.loss_scale == 4.0);
}

TEST_CASE("DecideStep: the row with the next count fills scalars and groups", "[kernels]") {
  Decision d;
  d.Run();
  CHECK(d.record.applied == 1);
  CHECK(d.scalars.apply == 1);
  CHECK(d.record.applied_steps == 6);
  CHECK(d.state.applied == 6);
  CHECK(d.record.learning_rate == d.rows[1].learning_rate);
  CHECK(d.scalars.sqrt_bias_correction2 == d.rows[1].sqrt_bias_correction2);
  CHECK(d.scalars.beta1 == d.rows[1].beta1);
  CHECK(d.scalars.one_minus_beta1 == d.rows[1].one_minus_beta1);
  CHECK(d.scalars.random_key == 6);
  CHECK(d.groups[0].step_size == 60.0f);
  CHECK(d.groups[1].step_size == 61.0f);
  CHECK(d.record.row_missing == 0);
}

TEST_CASE("DecideStep: clips to the threshold above it and not below it", "[kernels]") {
  Decision d;
  d.rows[1].clip_norm = 2.0;
  d.Run();
  CHECK(d.record.clip_coefficient == 2.0 / (5.0 + 1e-6));
  CHECK(d.scalars.clip_coefficient == static_cast<float>(2.0 / (5.0 + 1e-6)));

  Decision wide;
  wide.rows[1].clip_norm = 6.0;
  wide.Run();
  CHECK(wide.scalars.clip_coefficient == 1.0f);

  Decision none;
  none.rows[1].clip_norm = 0;
  none.Run();
  CHECK(none.record.clip_coefficient == 1.0);
}

TEST_CASE("DecideStep: one non-finite element on one rank skips without counting", "[kernels]") {
  const int64_t rank = GENERATE(0, 1);
  Decision d;
  d.ranks[rank].non_finite = 1;
  d.ranks[rank].first_non_finite = 77;
  d.ranks[rank].sum_of_squares = std::numeric_limits<double>::infinity();
  d.Run();
  CHECK(d.scalars.apply == 0);
  CHECK(d.record.applied == 0);
  CHECK(d.state.applied == 5);
  CHECK(d.record.applied_steps == 5);
  CHECK(d.record.first_non_finite == 77);
  // The next finite step takes the same row.
  d.ranks[rank] = RankNorm();
  d.Run();
  CHECK(d.record.applied_steps == 6);
  CHECK(d.groups[0].step_size == 60.0f);
}

TEST_CASE("DecideStep: unchecked a non-finite element is counted and the step applies",
          "[kernels]") {
  Decision d;
  d.check_overflow = 0;
  d.ranks[1].non_finite = 3;
  d.ranks[1].first_non_finite = 77;
  d.ranks[1].sum_of_squares = std::numeric_limits<double>::infinity();
  d.state.consecutive_skips = 2;
  d.Run();
  CHECK(d.record.applied == 1);
  CHECK(d.scalars.apply == 1);
  CHECK(d.state.applied == 6);
  CHECK(d.state.skipped == 0);
  CHECK(d.state.consecutive_skips == 0);
  CHECK(d.record.non_finite == 3);
  CHECK(d.record.first_non_finite == 77);
  CHECK(d.record.owner == 1);
  // A norm that is none still refuses it.
  Decision failed;
  failed.check_overflow = 0;
  failed.ranks[1].non_finite = kNormFailed;
  failed.Run();
  CHECK(failed.record.group_failed == 1);
  CHECK(failed.scalars.apply == 0);
  CHECK(failed.state.applied == 5);
}

TEST_CASE("RecordNorms: after a decision without norms the record is that of a decision with them",
          "[kernels]") {
  Decision whole, ahead;
  for (Decision* d : {&whole, &ahead}) {
    d->check_overflow = 0;
    d->predivided = 2;
    d->ranks[0].loss_weight = 5;
    d->ranks[1].loss_weight = 8;
    d->ranks[0].non_finite = 3;
    d->ranks[0].first_non_finite = 77;
    d->ranks[1].first_written = 70;
  }
  whole.Run();
  const Decision norms = ahead;
  for (RankNorm& rank : ahead.ranks) {
    const double weight = rank.loss_weight;
    rank = {};
    rank.loss_weight = weight;
  }
  ahead.Run();
  CHECK(ahead.scalars.divisor == whole.scalars.divisor);
  CHECK(ahead.state.applied == whole.state.applied);
  CHECK(ahead.record.gradient_norm != whole.record.gradient_norm);
  ahead.ahead = true;
  ahead.ranks[0] = norms.ranks[0];
  ahead.ranks[1] = norms.ranks[1];
  ahead.Run();
  CHECK(ahead.state.applied == whole.state.applied);
  CHECK(ahead.record.gradient_norm == whole.record.gradient_norm);
  CHECK(ahead.record.applied == whole.record.applied);
  CHECK(ahead.record.applied_steps == whole.record.applied_steps);
  CHECK(ahead.record.last_applied_step == whole.record.last_applied_step);
  CHECK(ahead.record.learning_rate == whole.record.learning_rate);
  CHECK(ahead.record.clip_coefficient == whole.record.clip_coefficient);
  CHECK(ahead.record.loss_scale == whole.record.loss_scale);
  CHECK(ahead.record.loss_weight == whole.record.loss_weight);
  CHECK(ahead.record.non_finite == whole.record.non_finite);
  CHECK(ahead.record.first_non_finite == whole.record.first_non_finite);
  CHECK(ahead.record.owner == whole.record.owner);
  CHECK(ahead.record.first_written == whole.record.first_written);
  CHECK(ahead.record.producer == whole.record.producer);
  CHECK(ahead.record.group_failed == 0);
  // And a rank that failed meanwhile is seen.
  ahead.ranks[1].non_finite = kNormFailed;
  ahead.Run();
  CHECK(ahead.record.group_failed == 1);
  CHECK(ahead.record.applied == 1);
}

TEST_CASE("DecideStep: the first non-finite element is the smallest over the ranks", "[kernels]") {
  Decision d;
  d.ranks[0].non_finite = 1;
  d.ranks[0].first_non_finite = 900;
  d.ranks[0].first_written = 10;
  d.ranks[1].non_finite = 3;
  d.ranks[1].first_non_finite = 12;
  d.Run();
  CHECK(d.record.first_non_finite == 12);
  CHECK(d.record.owner == 1);
  CHECK(d.record.first_written == 10);
  CHECK(d.record.producer == 0);
  CHECK(d.record.non_finite == 4);
}

TEST_CASE("DecideStep: the step is unscaled with the scale of its loss, then the scale moves",
          "[kernels]") {
  Decision d;
  d.rule.kind = LossScaleKind::kDynamic;
  d.rule.window = 1;
  d.rule.hysteresis = 1;
  d.Run();
  CHECK(d.record.next_loss_scale == 4);
  for (int step = 1; step <= 3; ++step) {
    d.state.applied = 5;
    const double scale = 4 * std::exp2(step - 1);
    for (RankNorm& rank : d.ranks) rank.sum_of_squares *= step == 1 ? 1 : 4;
    d.Run();
    CHECK(d.record.loss_scale == scale);
    CHECK(d.record.gradient_norm == 5);
    CHECK(d.scalars.divisor == static_cast<float>(2 * scale));
    CHECK(d.record.next_loss_scale == 2 * scale);
    CHECK(d.state.loss_scale.scale == static_cast<float>(2 * scale));
  }
  d.ranks[1].non_finite = 1;
  d.Run();
  CHECK(d.record.loss_scale == 32);
  CHECK(d.record.next_loss_scale == 16);
}

TEST_CASE("DecideStep: what was divided before it was sent is multiplied back", "[kernels]") {
  Decision d;
  d.predivided = 4;
  d.Run();
  CHECK(d.record.gradient_norm == 20);
  CHECK(d.scalars.divisor == 2);
}

TEST_CASE("DecideStep: skips are counted and their limit stops all later steps", "[kernels]") {
  Decision d;
  d.max_consecutive_skips = 3;
  const auto run = [&](int64_t step, bool overflow) {
    d.step = step;
    d.ranks[0].non_finite = overflow ? 1 : 0;
    d.state.applied = 5;
    d.Run();
  };
  run(1, true);
  run(2, true);
  CHECK(d.record.consecutive_skips == 2);
  run(3, false);
  CHECK(d.record.applied == 1);
  CHECK(d.record.consecutive_skips == 0);
  for (int64_t step : {4, 5}) run(step, true);
  CHECK(d.record.stop == StopReason::kNone);
  run(6, true);
  CHECK(d.record.stop == StopReason::kTooManySkips);
  CHECK(d.record.skipped == 5);
  run(7, false);
  CHECK(d.record.applied == 0);
  CHECK(d.scalars.apply == 0);
  CHECK(d.state.applied == 5);
  CHECK(d.record.stop_step == 6);
  CHECK(d.record.skipped == 5);
}

TEST_CASE("DecideStep: an overflow at the smallest loss scale stops all later steps", "[kernels]") {
  Decision d;
  d.rule.kind = LossScaleKind::kDynamic;
  d.rule.hysteresis = 1;
  d.rule.minimum = 4;
  d.step = 9;
  d.ranks[1].non_finite = 1;
  d.Run();
  CHECK(d.record.stop == StopReason::kScaleAtMinimum);
  CHECK(d.record.stop_step == 9);
  d.ranks[1].non_finite = 0;
  d.step = 10;
  d.Run();
  CHECK(d.record.applied == 0);
  CHECK(d.record.stop_step == 9);
  CHECK(d.state.loss_scale.scale == 4);
}

TEST_CASE("DecideStep: without a row for the count the step does nothing and says so",
          "[kernels]") {
  Decision d;
  d.state.applied = 7;
  d.Run();
  CHECK(d.record.row_missing == 1);
  CHECK(d.scalars.apply == 0);
  CHECK(d.state.applied == 7);
}

TEST_CASE("DecideStep: loss weights of the ranks replace the passes as divisor", "[kernels]") {
  Decision d;
  d.ranks[0].loss_weight = 3;
  d.ranks[1].loss_weight = 7;
  d.Run();
  CHECK(d.record.loss_weight == 10.0);
  CHECK(d.scalars.divisor == 40.0f);
  CHECK(d.record.gradient_norm == 40.0 / 40.0);
}

TEST_CASE("CombineNorms: adds in order and finds the first element of the whole model",
          "[kernels]") {
  NormPartial parts[3];
  parts[0].sum_of_squares = 1e16;
  parts[1].sum_of_squares = 1;
  parts[2].sum_of_squares = 1;
  const int64_t bases[] = {5000, 100, 2000};
  KernelRun run;
  RankNorm out;
  int64_t first = INT64_MAX;
  CHECK_OK(CombineNorms(run.stream(), run.On(parts, 3), run.On(bases, 3), 3, 2.5, run.On(&first),
                        run.On(&out)));
  run.Finish();
  CHECK(out.sum_of_squares == (1e16 + 1) + 1);
  CHECK(out.sum_of_squares != 1e16 + (1 + 1.0));  // the order shows
  CHECK(out.loss_weight == 2.5);
  CHECK(out.non_finite == 0);
  CHECK(out.first_non_finite == INT64_MAX);

  parts[0].non_finite = 2;
  parts[0].first_non_finite = 3;
  parts[2].non_finite = 1;
  parts[2].first_non_finite = 4;
  CHECK_OK(CombineNorms(run.stream(), run.On(parts, 3), run.On(bases, 3), 3, 0, run.On(&first),
                        run.On(&out)));
  run.Finish();
  CHECK(out.non_finite == 3);
  CHECK(out.first_non_finite == 2004);
  CHECK(out.first_written == INT64_MAX);
}

TEST_CASE("NoteNonFinite: the smallest index of a step goes out with its norm once", "[kernels]") {
  NormPartial parts[3];
  parts[0].non_finite = 1;
  parts[0].first_non_finite = 70;
  parts[2].non_finite = 5;
  parts[2].first_non_finite = 3;
  KernelRun run;
  int64_t first = INT64_MAX;
  RankNorm out;
  for (const NormPartial& part : parts) {
    CHECK_OK(NoteNonFinite(run.stream(), run.On(&part), 100, run.On(&first)));
  }
  const auto combine = [&] {
    CHECK_OK(CombineNorms(run.stream(), nullptr, nullptr, 0, 1, run.On(&first), run.On(&out)));
    run.Finish();
  };
  combine();
  CHECK(out.first_written == 103);
  combine();
  CHECK(out.first_written == INT64_MAX);
}

TEST_CASE("CombineNorms: no parts give zero", "[kernels]") {
  KernelRun run;
  RankNorm out;
  out.sum_of_squares = 5;
  int64_t first = INT64_MAX;
  CHECK_OK(CombineNorms(run.stream(), nullptr, nullptr, 0, 1, run.On(&first), run.On(&out)));
  run.Finish();
  CHECK(out.sum_of_squares == 0);
  CHECK(out.non_finite == 0);
}

TEST_CASE("NoteFailure: the note is what the flag is when the stream comes to it", "[kernels]") {
  KernelRun run;
  int32_t flags[2] = {0, 1};
  int32_t notes[2] = {7, 7};
  REQUIRE_OK(NoteFailure(run.stream(), run.On(flags, 2), run.On(notes, 2)));
  REQUIRE_OK(NoteFailure(run.stream(), run.On(flags, 2) + 1, run.On(notes, 2) + 1));
  run.Finish();
  CHECK(notes[0] == 0);
  CHECK(notes[1] == 1);
}

}  // namespace
}  // namespace zero
