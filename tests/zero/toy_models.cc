// The models of the matrices.
#include "absl/strings/str_cat.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

Unit MakeUnit(const std::string& name, DType dtype,
              const std::vector<std::vector<int64_t>>& shapes) {
  Unit unit;
  unit.name = name;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Parameter parameter;
    parameter.name = absl::StrCat(name, ".", i);
    parameter.shape = shapes[i];
    parameter.dtype = dtype;
    unit.parameters.push_back(parameter);
  }
  return unit;
}

}  // namespace

std::vector<std::string> ModelNames() { return {"tiny", "odd", "large", "mixed"}; }

Model MakeModel(const std::string& name, DType dtype) {
  Model model;
  if (name == "tiny") {  // fewer elements than ranks, empty parameters, an empty unit
    model.units = {MakeUnit("a", dtype, {{1}}), MakeUnit("b", dtype, {{3}, {}}),
                   MakeUnit("c", dtype, {{8, 0, 24}}), MakeUnit("d", dtype, {{0, 8}, {5}}),
                   MakeUnit("e", dtype, {})};
  } else if (name == "odd") {  // primes, and sizes around the alignment
    model.units = {MakeUnit("a", dtype, {{57}, {13, 17}}), MakeUnit("b", dtype, {{63}, {64}, {65}}),
                   MakeUnit("c", dtype, {{1009}}), MakeUnit("d", dtype, {{127}, {0, 8}, {5}}),
                   MakeUnit("e", dtype, {{2, 3, 5, 7}, {1}})};
  } else if (name == "large") {  // one unit far larger than the others
    model.units = {MakeUnit("a", dtype, {{31, 7}}), MakeUnit("b", dtype, {{97, 211}, {97}}),
                   MakeUnit("c", dtype, {{31}})};
  } else if (name == "blocks") {  // files of several checksummed blocks
    model.units = {MakeUnit("a", dtype, {{31}}), MakeUnit("b", dtype, {{500, 701}})};
  } else {  // a resident unit, frozen parameters, two dtypes, groups, an alias
    model.units = {MakeUnit("embedding", dtype, {{37, 11}}),
                   MakeUnit("a", dtype, {{11, 23}, {23}, {129}}),
                   MakeUnit("frozen", dtype, {{19, 3}}), MakeUnit("b", dtype, {{300}, {7}})};
    model.units[0].resident = true;
    model.units[0].parameters[0].aliases = {"head"};
    model.units[1].parameters[1].dtype = DType::kF32;
    model.units[1].parameters[1].group = 1;
    model.units[1].parameters[2].trainable = false;
    model.units[2].parameters[0].trainable = false;
    model.units[3].parameters[1].group = 1;
  }
  return model;
}

}  // namespace zero::test
