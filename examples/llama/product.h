// What a matrix product is, and products on the host, by whichever library can do them here.
#pragma once

#include <cstdint>

#include "device/dtype.h"

namespace zero::llama {

enum class ProductLibrary : uint8_t {
  kAuto,   // oneDNN where it is built in and can do the types on this CPU, else Eigen
  kEigen,  // always Eigen
};

// For the whole process, from the next product on. For tests and comparisons.
void SetProductLibrary(ProductLibrary library);

// One product, C = A B + addend, that a library is asked for. Strides are elements from one row to
// the next of the matrix as it lies in memory.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  bool transpose_a = false, transpose_b = false;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  DType in_type = DType::kF32;
  void* c = nullptr;
  DType out_type = DType::kF32;
  const void* addend = nullptr;  // as c; may be c
  int threads = 1;
};

// On the calling thread and `threads` - 1 others. False, with nothing done: oneDNN is not built in,
// or cannot do this one.
bool DnnlProduct(const Product& product);

// fp32 only.
void EigenProduct(const Product& product);

// Any types, from fp32 products of tiles that are widened to fp32.
void WidenedProduct(const Product& product);

// Whichever of these fits.
void RunProduct(const Product& product);

}  // namespace zero::llama
