// How a trainer describes its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/dtype.h"

namespace zero {

struct Parameter {
  std::string name;            // unique; the name in files
  std::vector<int64_t> shape;  // row-major; [] is one element, a 0 is allowed
  DType dtype = DType::kBF16;  // what the trainer's kernels read; kF32 is its own master
  int group = 0;               // Config::groups[group]
  bool trainable = true;       // false: no gradient, no states; still gathered and saved
  std::vector<std::string>
      aliases;  // other names in files (a tied head); one storage, one gradient
};

// The parameters that are gathered, released and reduced together: usually one layer.
struct Unit {
  std::string name;  // unique
  std::vector<Parameter> parameters;
  // Used more than once in a pass (a tied embedding): gathered once per step and kept until Step,
  // with a gradient slot of its own, which the later uses add to.
  bool resident = false;
};

// Units in the order of first use in forward; backward visits them in reverse.
struct Model {
  std::vector<Unit> units;
};

// Elements of a parameter; -1 if a dimension is negative or the product is above 2^56.
int64_t ElementCount(const Parameter& parameter);

}  // namespace zero
