// States of a small optimizer for the tests of AdamW and Sgd.
#pragma once

#include <vector>

#include "kernels/adamw_math.h"
#include "kernels/sgd_math.h"
#include "tests/kernels/kernel_test_util.h"

namespace zero {

// Everything that an update reads and writes, three parameter groups in turn.
struct UpdateState {
  UpdateState(DType gradient_type, bool has_weight, DType weight_type, int64_t n, int64_t offset)
      : gradient(gradient_type, RandomFloats(n, 31), offset),
        master(DType::kF32, RandomFloats(n, 32), offset),
        moment1(DType::kF32, RandomFloats(n, 33), offset),
        moment2(DType::kF32, n, offset),
        weight(weight_type, has_weight ? n : 0, offset),
        with_weight(has_weight) {
    for (int64_t i = 0; i < n; ++i) {
      const float x = moment1.Get(i);
      moment2.Set(i, x * x);
    }
    for (int64_t i = 0; i < n / 64; ++i) groups.push_back(static_cast<uint8_t>(i * 7 % 3));
    scalars.apply = 1;
    scalars.divisor = 3 * 1024.0f;
    scalars.clip_coefficient = 0.7f;
    scalars.sqrt_bias_correction2 = 0.0632f;
    for (float factor : {1.0f, 0.1f, 3.0f}) {
      GroupScalars row;
      row.learning_rate = 1e-3f * factor;
      row.step_size = 1.9e-3f * factor;
      row.keep = 1 - 1e-4f * factor;
      row.weight_decay = 0.01f * factor;
      rows.push_back(row);
    }
  }

  // What both updates have in common, in the memory of `run`'s device.
  template <class Arguments>
  Arguments Common(KernelRun& run) {
    Arguments a;
    a.gradient = run.On(gradient);
    a.gradient_type = gradient.type();
    a.master = run.FloatsOn(master);
    a.moment1 = run.FloatsOn(moment1);
    a.weight = with_weight ? run.On(weight) : nullptr;
    a.weight_type = weight.type();
    a.groups = run.On(groups);
    a.n = master.size();
    a.scalars = run.On(&scalars);
    a.rows = run.On(rows);
    return a;
  }
  AdamWArguments AdamW(KernelRun& run) {
    AdamWArguments a = Common<AdamWArguments>(run);
    a.moment2 = run.FloatsOn(moment2);
    SetHyperparameters(&a);
    return a;
  }
  static void SetHyperparameters(AdamWArguments* arguments) {
    AdamWArguments& a = *arguments;
    a.one_minus_beta1 = static_cast<float>(1 - 0.9);
    a.beta2 = 0.999f;
    a.one_minus_beta2 = static_cast<float>(1 - 0.999);
    a.epsilon = 1e-8f;
  }
  SgdArguments Sgd(KernelRun& run, float momentum) {
    SgdArguments a = Common<SgdArguments>(run);
    a.momentum = momentum;
    return a;
  }

  // One update by the scalar formulas.
  void ScalarAdamW() {
    AdamWArguments a;
    SetHyperparameters(&a);
    for (int64_t i = 0; i < master.size(); ++i) {
      float p = master.Get(i);
      float m = moment1.Get(i);
      float v = moment2.Get(i);
      AdamWMath(a, scalars, rows[groups[i / 64]], gradient.Get(i), &p, &m, &v);
      master.Set(i, p);
      moment1.Set(i, m);
      moment2.Set(i, v);
      if (with_weight) weight.Set(i, p);
    }
  }
  void ScalarSgd(float momentum, bool with_moment) {
    SgdArguments a;
    a.momentum = momentum;
    for (int64_t i = 0; i < master.size(); ++i) {
      float p = master.Get(i);
      float m = moment1.Get(i);
      SgdMath(a, scalars, rows[groups[i / 64]], gradient.Get(i), &p, with_moment ? &m : nullptr);
      master.Set(i, p);
      moment1.Set(i, m);
      if (with_weight) weight.Set(i, p);
    }
  }

  // "" or what differs.
  std::string Difference(const UpdateState& expected) const {
    const std::string differences[] = {
        gradient.Difference(expected.gradient), master.Difference(expected.master),
        moment1.Difference(expected.moment1), moment2.Difference(expected.moment2),
        weight.Difference(expected.weight)};
    const char* const names[] = {"gradient: ", "master: ", "moment1: ", "moment2: ", "weight: "};
    for (int i = 0; i < 5; ++i) {
      if (!differences[i].empty()) return names[i] + differences[i];
    }
    return "";
  }

  Elements gradient, master, moment1, moment2, weight;
  bool with_weight;
  std::vector<uint8_t> groups;
  StepScalars scalars;
  std::vector<GroupScalars> rows;
};

// Gradient type, and a weight of a type or none.
struct UpdateTypes {
  DType gradient;
  bool has_weight;
  DType weight;
};
inline std::vector<UpdateTypes> AllUpdateTypes() {
  std::vector<UpdateTypes> all;
  for (DType gradient : Types()) {
    for (DType weight : Types()) all.push_back({gradient, true, weight});
    all.push_back({gradient, false, DType::kBF16});
  }
  return all;
}

}  // namespace zero
