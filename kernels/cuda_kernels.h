// The kernels of kernels.h, decide.h and zero_ranges.h on CUDA streams. Arguments have been checked
// and n > 0. Each enqueues and returns; kInternal names the kernel if the launch fails.
//
// With `first` > 0 the elements before it are left out, as if they had been done: a test can reach
// indices beyond 2^31 without the memory, by moving the base of a short array back.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "kernels/decide.h"
#include "kernels/kernels.h"
#include "kernels/zero_ranges.h"

namespace zero::cuda {

absl::Status Cast(const Stream& stream, const void* in, DType in_type, void* out, DType out_type,
                  int64_t n, int64_t first = 0);
absl::Status Add(const Stream& stream, const void* in, DType in_type, void* sum, DType sum_type,
                 int64_t n, int64_t first = 0);
absl::Status Scale(const Stream& stream, void* x, DType type, float factor, int64_t n,
                   int64_t first = 0);
absl::Status Fill(const Stream& stream, void* x, DType type, float value, int64_t n,
                  int64_t first = 0);
absl::Status OrderedSum(const Stream& stream, const OrderedSumArguments& arguments,
                        int64_t first = 0);
// `first` is a multiple of kNormChunk: the chunks before it must be in `scratch`.
absl::Status Norm(const Stream& stream, const void* in, DType type, int64_t n, NormPartial* scratch,
                  NormPartial* out, int64_t first = 0);
// `first` is a multiple of 64.
absl::Status Adam(const Stream& stream, const AdamArguments& arguments, int64_t first = 0);
absl::Status Sgd(const Stream& stream, const SgdArguments& arguments, int64_t first = 0);
absl::Status Lion(const Stream& stream, const LionArguments& arguments, int64_t first = 0);
absl::Status CombineNorms(const Stream& stream, const NormPartial* parts, const int64_t* bases,
                          int64_t count, double loss_weight, int64_t* first_written, RankNorm* out);
absl::Status NoteNonFinite(const Stream& stream, const NormPartial* part, int64_t base,
                           int64_t* first_written);
absl::Status MarkFailed(const Stream& stream, const int32_t* failed, RankNorm* norm);
absl::Status DecideStep(const Stream& stream, const DecideArguments& arguments);
absl::Status RecordNorms(const Stream& stream, const DecideArguments& arguments);
absl::Status NoteFailure(const Stream& stream, const int32_t* group_failed, int32_t* note);
// `first` counts bytes of each range.
absl::Status ZeroRanges(const Stream& stream, const std::vector<ByteRange>& ranges,
                        int64_t first = 0);

}  // namespace zero::cuda
