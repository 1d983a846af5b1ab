#include "examples/train/product_threads.h"

#include <algorithm>

namespace zero::train {

int ProductThreads(int64_t threads, int64_t rows, const llama::LlamaConfig& model) {
  constexpr double kProductsPerThread = 1 << 25;  // a few tenths of a millisecond
  const double products = static_cast<double>(rows) * static_cast<double>(model.hidden_size) *
                          static_cast<double>(model.intermediate_size);
  const double useful = std::min(products / kProductsPerThread, 1e6);
  return static_cast<int>(
      std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, static_cast<int64_t>(useful))));
}

}  // namespace zero::train
