#include "zero/model.h"

namespace zero {

int64_t ElementCount(const Parameter& parameter) {
  // Far above any model, and far enough below 2^63 that bytes and sums of a whole model fit.
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t count = 1;
  bool empty = false;
  for (int64_t dimension : parameter.shape) {
    if (dimension < 0) return -1;
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (count > kMost / dimension) return -1;
    count *= dimension;
  }
  return empty ? 0 : count;
}

}  // namespace zero
