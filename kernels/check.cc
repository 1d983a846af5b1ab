#include "kernels/check.h"

#include "absl/strings/str_cat.h"

namespace zero {

absl::Status CheckCount(const char* kernel, int64_t n, int64_t multiple) {
  if (n < 0) {
    return absl::InvalidArgumentError(absl::StrCat(kernel, ": n is ", n, ", below 0"));
  }
  if (n % multiple != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kernel, ": n is ", n, ", not a multiple of ", multiple));
  }
  return absl::OkStatus();
}

absl::Status CheckPointer(const char* kernel, const char* argument, const void* pointer) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kernel, ": ", argument, " is null"));
}

absl::Status CheckOverlap(const char* kernel, const void* in, DType in_type, const char* argument,
                          const void* out, DType out_type, int64_t n) {
  if (in == out && in_type == out_type) return absl::OkStatus();
  // As integers: comparing pointers into different objects is not defined.
  const uintptr_t in_begin = reinterpret_cast<uintptr_t>(in);
  const uintptr_t out_begin = reinterpret_cast<uintptr_t>(out);
  const uintptr_t in_end = in_begin + static_cast<uintptr_t>(n * SizeOf(in_type));
  const uintptr_t out_end = out_begin + static_cast<uintptr_t>(n * SizeOf(out_type));
  if (in_end <= out_begin || out_end <= in_begin) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kernel, ": ", argument, " overlaps the input without being the same elements"));
}

}  // namespace zero
