// States of a small optimizer for the tests of the updates.
#pragma once

#include <string>
#include <vector>

#include "kernels/adam_math.h"
#include "kernels/lion_math.h"
#include "kernels/random_bits_math.h"
#include "kernels/sgd_math.h"
#include "kernels/split_math.h"
#include "tests/kernels/kernel_test_util.h"

namespace zero {

// The kinds of MasterMemory, with both roundings of the second.
enum class Masters { kOwn, kBF16, kBF16Away, kF16, kSplit, kNone };

struct UpdateTypes {
  DType gradient;
  Masters masters;

  DType weight() const {
    return masters == Masters::kOwn   ? DType::kF32
           : masters == Masters::kF16 ? DType::kF16
                                      : DType::kBF16;
  }
  std::string ToString() const {
    const char* const names[] = {"own", "bf16", "bf16 away", "fp16", "split", "none"};
    return std::string("gradient ") + Name(gradient) + ", masters " +
           names[static_cast<int>(masters)];
  }
};

// Every kind with every gradient that it can have.
inline std::vector<UpdateTypes> AllUpdateTypes() {
  std::vector<UpdateTypes> all;
  for (Masters masters : {Masters::kOwn, Masters::kBF16, Masters::kBF16Away, Masters::kF16,
                          Masters::kSplit, Masters::kNone}) {
    all.push_back({DType::kF32, masters});
    const DType narrow = all.back().weight();
    if (narrow != DType::kF32) all.push_back({narrow, masters});
  }
  return all;
}

// Everything that an update reads and writes, three parameter groups in turn.
struct UpdateState {
  UpdateState(const UpdateTypes& the_types, int64_t n, int64_t offset)
      : types(the_types),
        gradient(types.gradient, RandomFloats(n, 31), offset),
        master(DType::kF32, HasFp32() ? n : 0, offset),
        remainder(DType::kBF16, types.masters == Masters::kSplit ? n : 0, offset),
        weight(types.weight(), types.masters == Masters::kOwn ? 0 : n, offset),
        moment1(DType::kF32, RandomFloats(n, 33), offset),
        moment2(DType::kF32, n, offset) {
    const std::vector<float> masters = RandomFloats(n, 32);
    for (int64_t i = 0; i < n; ++i) {
      SetMaster(i, masters[i]);
      const float x = moment1.Get(i);
      moment2.Set(i, x * x);
    }
    for (int64_t i = 0; i < n / 64; ++i) groups.push_back(static_cast<uint8_t>(i * 7 % 3));
    scalars.apply = 1;
    scalars.divisor = 3 * 1024.0f;
    scalars.clip_coefficient = 0.7f;
    scalars.sqrt_bias_correction2 = 0.0632f;
    scalars.beta1 = 0.9f;
    scalars.one_minus_beta1 = static_cast<float>(1 - 0.9);
    scalars.random_key = 17;
    for (float factor : {1.0f, 0.1f, 3.0f}) {
      GroupScalars row;
      row.learning_rate = 1e-3f * factor;
      row.step_size = 1.9e-3f * factor;
      row.keep = 1 - 1e-4f * factor;
      row.weight_decay = factor < 1 ? 0 : 0.01f * factor;
      rows.push_back(row);
    }
  }

  int64_t size() const { return moment1.size(); }
  // An array of fp32 masters is there.
  bool HasFp32() const { return types.masters <= Masters::kF16; }

  // What all updates have, in the memory of `run`'s device.
  template <class Arguments>
  Arguments Common(KernelRun& run) {
    Arguments a;
    a.gradient = run.On(gradient);
    a.gradient_type = gradient.type();
    MasterMemory& w = a.weights;
    if (HasFp32()) w.master = run.FloatsOn(master);
    if (types.masters == Masters::kSplit) w.remainder = static_cast<uint16_t*>(run.On(remainder));
    if (types.masters != Masters::kOwn) w.weight = run.On(weight);
    w.weight_type = weight.type();
    w.ties_away = types.masters == Masters::kBF16Away;
    w.random_key = random_key;
    w.first_element = first_element;
    a.groups = run.On(groups);
    a.n = size();
    a.scalars = run.On(&scalars);
    a.rows = run.On(rows);
    a.moment1 = run.FloatsOn(moment1);
    return a;
  }
  AdamArguments Adam(KernelRun& run) {
    AdamArguments a = Common<AdamArguments>(run);
    a.moment2 = run.FloatsOn(moment2);
    SetHyperparameters(&a);
    return a;
  }
  static void SetHyperparameters(AdamArguments* arguments) {
    arguments->beta2 = 0.999f;
    arguments->one_minus_beta2 = static_cast<float>(1 - 0.999);
    arguments->epsilon = 1e-8f;
  }
  // The momentum is scalars.beta1.
  SgdArguments Sgd(KernelRun& run, bool nesterov = false) {
    SgdArguments a = Common<SgdArguments>(run);
    a.nesterov = nesterov;
    return a;
  }
  LionArguments Lion(KernelRun& run) {
    LionArguments a = Common<LionArguments>(run);
    SetHyperparameters(&a);
    return a;
  }
  static void SetHyperparameters(LionArguments* arguments) {
    arguments->beta2 = 0.99f;
    arguments->one_minus_beta2 = static_cast<float>(1 - 0.99);
  }

  float Master(int64_t i) const {
    if (HasFp32()) return master.Get(i);
    const BFloat16 upper{static_cast<uint16_t>(weight.Bits(i))};
    if (types.masters == Masters::kNone) return ToFloat(upper);
    return JoinMath({upper, static_cast<uint16_t>(remainder.Bits(i))});
  }
  void SetMaster(int64_t i, float p) {
    if (HasFp32()) master.Set(i, p);
    switch (types.masters) {
      case Masters::kOwn:
        break;
      case Masters::kBF16:
      case Masters::kF16:
        weight.Set(i, p);
        break;
      case Masters::kBF16Away:
        weight.SetBits(i, ToBFloat16Away(p).bits);
        break;
      case Masters::kSplit:
        weight.SetBits(i, SplitMath(p).weight.bits);
        remainder.SetBits(i, SplitMath(p).remainder);
        break;
      case Masters::kNone: {
        const int64_t element = first_element + i;
        const RandomKeys keys =
            RandomKeysOf(scalars.random_key, random_key, static_cast<uint32_t>(element >> 32));
        weight.SetBits(i, UpperHalf(p, RandomBitsMath(keys, static_cast<uint32_t>(element))).bits);
        break;
      }
    }
  }

  // One update by the scalar formulas.
  void ScalarAdam() {
    AdamArguments a;
    SetHyperparameters(&a);
    for (int64_t i = 0; i < size(); ++i) {
      float p = Master(i);
      float m = moment1.Get(i);
      float v = moment2.Get(i);
      AdamMath(a, scalars, rows[groups[i / 64]], gradient.Get(i), &p, &m, &v);
      SetMaster(i, p);
      moment1.Set(i, m);
      moment2.Set(i, v);
    }
  }
  void ScalarSgd(bool with_moment = true, bool nesterov = false) {
    SgdArguments a;
    a.nesterov = nesterov;
    for (int64_t i = 0; i < size(); ++i) {
      float p = Master(i);
      float m = moment1.Get(i);
      SgdMath(a, scalars, rows[groups[i / 64]], gradient.Get(i), &p, with_moment ? &m : nullptr);
      SetMaster(i, p);
      moment1.Set(i, m);
    }
  }
  void ScalarLion() {
    LionArguments a;
    SetHyperparameters(&a);
    for (int64_t i = 0; i < size(); ++i) {
      float p = Master(i);
      float m = moment1.Get(i);
      LionMath(a, scalars, rows[groups[i / 64]], gradient.Get(i), &p, &m);
      SetMaster(i, p);
      moment1.Set(i, m);
    }
  }

  // "" or what differs.
  std::string Difference(const UpdateState& expected) const {
    const std::string differences[] = {
        gradient.Difference(expected.gradient),
        master.Difference(expected.master),
        remainder.bytes() == expected.remainder.bytes() ? "" : "other bits",
        weight.Difference(expected.weight),
        moment1.Difference(expected.moment1),
        moment2.Difference(expected.moment2)};
    const char* const names[] = {
        "gradient: ", "master: ", "remainder: ", "weight: ", "moment1: ", "moment2: "};
    for (int i = 0; i < 6; ++i) {
      if (!differences[i].empty()) return names[i] + differences[i];
    }
    return "";
  }
  // Every byte, guards included.
  bool SameBytes(const UpdateState& other) const {
    return gradient.bytes() == other.gradient.bytes() && master.bytes() == other.master.bytes() &&
           remainder.bytes() == other.remainder.bytes() && weight.bytes() == other.weight.bytes() &&
           moment1.bytes() == other.moment1.bytes() && moment2.bytes() == other.moment2.bytes();
  }

  UpdateTypes types;
  Elements gradient, master, remainder, weight, moment1, moment2;
  uint32_t random_key = 5;
  int64_t first_element = 192;
  std::vector<uint8_t> groups;
  StepScalars scalars;
  std::vector<GroupScalars> rows;
};

}  // namespace zero
