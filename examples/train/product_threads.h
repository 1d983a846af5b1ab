// How many threads share one matrix product.
#pragma once

#include <cstdint>

#include "examples/llama/config.h"

namespace zero::train {

// At most `threads`, at least 1, and no more than a model's largest product of a layer over `rows`
// tokens can keep busy: threads that wait for each other after every few microseconds of work cost
// more than they bring, far more where other programs run.
int ProductThreads(int64_t threads, int64_t rows, const llama::LlamaConfig& model);

}  // namespace zero::train
