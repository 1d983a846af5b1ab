#include "kernels/decide.h"

#include "kernels/decide_math.h"
#include "kernels/device_check.h"

namespace zero {

absl::Status CombineNorms(const Stream& stream, const NormPartial* parts, const int64_t* bases,
                          int64_t count, double loss_weight, int64_t* first_written,
                          RankNorm* out) {
  if (OnCuda(stream)) {
    return cuda::CombineNorms(stream, parts, bases, count, loss_weight, first_written, out);
  }
  return stream.Enqueue("combine_norms", [=] {
    CombineNormsMath(parts, bases, count, loss_weight, first_written, out);
    return absl::OkStatus();
  });
}

absl::Status NoteNonFinite(const Stream& stream, const NormPartial* part, int64_t base,
                           int64_t* first_written) {
  if (OnCuda(stream)) return cuda::NoteNonFinite(stream, part, base, first_written);
  return stream.Enqueue("note_non_finite", [=] {
    NoteNonFiniteMath(part, base, first_written);
    return absl::OkStatus();
  });
}

absl::Status MarkFailed(const Stream& stream, const int32_t* failed, RankNorm* norm) {
  if (OnCuda(stream)) return cuda::MarkFailed(stream, failed, norm);
  return stream.Enqueue("mark_failed", [=] {
    MarkFailedMath(failed, norm);
    return absl::OkStatus();
  });
}

absl::Status DecideStep(const Stream& stream, const DecideArguments& arguments) {
  if (OnCuda(stream)) return cuda::DecideStep(stream, arguments);
  return stream.Enqueue("decide_step", [arguments] {
    DecideStepMath(arguments);
    return absl::OkStatus();
  });
}

absl::Status RecordNorms(const Stream& stream, const DecideArguments& arguments) {
  if (OnCuda(stream)) return cuda::RecordNorms(stream, arguments);
  return stream.Enqueue("record_norms", [arguments] {
    RecordNormsMath(arguments);
    return absl::OkStatus();
  });
}

absl::Status NoteFailure(const Stream& stream, const int32_t* group_failed, int32_t* note) {
  if (OnCuda(stream)) return cuda::NoteFailure(stream, group_failed, note);
  return stream.Enqueue("note_failure", [=] {
    NoteFailureMath(group_failed, note);
    return absl::OkStatus();
  });
}

}  // namespace zero
