// Which library does the products of a test case.
#pragma once

#include "examples/llama/product.h"

namespace zero::llama {

// Back to the default at the end of its scope.
struct WithLibrary {
  explicit WithLibrary(ProductLibrary library) { SetProductLibrary(library); }
  ~WithLibrary() { SetProductLibrary(ProductLibrary::kAuto); }
};

// oneDNN is not built for ThreadSanitizer, which then reports races that are not there.
#ifdef __SANITIZE_THREAD__
inline constexpr ProductLibrary kThreadSafeLibrary = ProductLibrary::kEigen;
#else
inline constexpr ProductLibrary kThreadSafeLibrary = ProductLibrary::kAuto;
#endif

}  // namespace zero::llama
