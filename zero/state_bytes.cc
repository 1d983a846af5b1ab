// State as the bytes of a file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/misuse.h"
#include "zero/state_transfer.h"

namespace zero {
namespace {

constexpr int64_t kStagingBytes = kTransferElements * 4;

absl::Status TooLarge(const std::string& parameter, int64_t element, float value, DType dtype) {
  return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter, "': element ", element,
                                                 " is ", value, ", too large for ", Name(dtype)));
}

// The first finite value that is inf when it is rounded; -1: none.
int64_t FirstOverflow(absl::Span<const float> values, const void* rounded, DType dtype) {
  const uint16_t infinity = dtype == DType::kF16 ? 0x7C00 : 0x7F80;
  const auto* const bits = static_cast<const uint16_t*>(rounded);
  for (size_t i = 0; i < values.size(); ++i) {
    if ((bits[i] & 0x7FFF) == infinity && std::isfinite(values[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace

StateTransfer::FileFormat StateTransfer::FormatOf(int unit, int s,
                                                  std::optional<DType> dtype) const {
  FileFormat format;
  if (dtype.has_value() && *dtype != context_->unit(unit).segments[s].dtype) {
    format.rounded = dtype;
  }
  format.parts = PartsOf(format.rounded.has_value() ? State::kMaster : State::kWeight, unit, s);
  // As weights are, the bytes count, and a part that is added to others is not one of a file.
  if (!format.rounded.has_value()) format.parts.resize(1);
  int64_t raw = 0;
  for (const StatePlace& part : format.parts) raw += BytesOf(part.stored);
  // Values and what they are rounded to lie side by side.
  const int64_t values =
      !format.rounded.has_value() ? 0 : 4 + (*format.rounded == DType::kF32 ? 0 : 4);
  format.columns = kStagingBytes / std::max(raw, values);
  return format;
}

absl::Status StateTransfer::Emit(int unit, int s, const FileFormat& format, int64_t at, int64_t n,
                                 absl::Span<const char* const> raw, const ByteSink& sink) {
  const std::vector<Run>& runs = context_->unit(unit).parameters;
  const int64_t element = BytesOf(format.parts[0].stored);
  for (int p = 0; p < static_cast<int>(runs.size()); ++p) {
    const int64_t from = std::max(runs[p].first, at);
    const int64_t to = std::min(runs[p].first + runs[p].count, at + n);
    if (runs[p].segment != s || from >= to) continue;
    const int64_t first = from - runs[p].first;
    const char* const bytes = raw[0] + (from - at) * element;
    if (!format.rounded.has_value()) {
      const auto size = static_cast<size_t>((to - from) * element);
      ZERO_RETURN_IF_ERROR(sink(p, first, absl::MakeConstSpan(bytes, size)));
      continue;
    }
    const absl::Span<float> values(host_values_.as<float>(), static_cast<size_t>(to - from));
    Decode(bytes, format.parts[0].stored, values);
    if (format.parts.size() > 1) {
      AddRemainders(reinterpret_cast<const uint16_t*>(raw[1]) + (from - at), values);
    }
    const char* rounded = host_values_.as<char>();
    const DType dtype = *format.rounded;
    if (dtype != DType::kF32) {
      char* const half = host_values_.bytes_at(kStagingBytes / 2);
      Encode(values, StoredAsOf(dtype), half);
      const int64_t overflow = FirstOverflow(values, half, dtype);
      if (overflow >= 0) {
        return TooLarge(context_->model->units[unit].parameters[p].name, first + overflow,
                        values[static_cast<size_t>(overflow)], dtype);
      }
      rounded = half;
    }
    const size_t size = values.size() * static_cast<size_t>(SizeOf(dtype));
    ZERO_RETURN_IF_ERROR(sink(p, first, absl::MakeConstSpan(rounded, size)));
  }
  return absl::OkStatus();
}

absl::Status StateTransfer::ReadBytes(int unit, std::optional<DType> dtype, const ByteSink& sink) {
  const Stream& stream = *context_->arithmetic;
  for (int s = 0; s < static_cast<int>(context_->unit(unit).segments.size()); ++s) {
    const int64_t slice = context_->unit(unit).segments[s].slice;
    const int64_t own = context_->rank() * slice;
    const FileFormat format = FormatOf(unit, s, dtype);
    for (int64_t column = 0; column < slice; column += format.columns) {
      const int64_t n = std::min(format.columns, slice - column);
      std::vector<const char*> raw;
      int64_t taken = 0;
      for (const StatePlace& part : format.parts) {
        char* const to = host_raw_.bytes_at(taken);
        ZERO_RETURN_IF_ERROR(CopyOut(stream, part, (part.sliced ? 0 : own) + column, n, to));
        raw.push_back(to);
        taken += n * BytesOf(part.stored);
      }
      ZERO_RETURN_IF_ERROR(stream.Synchronize());
      const absl::Status emitted = Emit(unit, s, format, own + column, n, raw, sink);
      if (!emitted.ok()) return Misuse(emitted);
    }
  }
  return absl::OkStatus();
}

absl::Status StateTransfer::GatherBytes(int unit, std::optional<DType> dtype,
                                        const ByteSink& sink) {
  const Stream& stream = *context_->communication;
  const int ranks = context_->group->size();
  absl::Status first_error;
  for (int s = 0; s < static_cast<int>(context_->unit(unit).segments.size()); ++s) {
    const int64_t slice = context_->unit(unit).segments[s].slice;
    const FileFormat format = FormatOf(unit, s, dtype);
    const int64_t columns = std::max<int64_t>(format.columns / ranks, 1);
    for (int64_t column = 0; column < slice; column += columns) {
      const int64_t n = std::min(columns, slice - column);
      std::vector<int64_t> starts;  // of part k of rank 0
      int64_t received = 0;
      for (const StatePlace& part : format.parts) {
        ZERO_RETURN_IF_ERROR(
            GatherPlace(kSaving, part, column, n, slice, device_staging_.bytes_at(received)));
        starts.push_back(received);
        received += ranks * n * BytesOf(part.stored);
      }
      const bool wanted = sink && first_error.ok();
      if (wanted) {
        ZERO_RETURN_IF_ERROR(
            context_->device->Copy(stream, host_raw_.data(), device_staging_.data(), received));
      }
      ZERO_RETURN_IF_ERROR(stream.Synchronize());
      // Where a failed group lets its streams go on, what arrived may be anything.
      ZERO_RETURN_IF_ERROR(context_->group->Health());
      for (int r = 0; wanted && first_error.ok() && r < ranks; ++r) {
        std::vector<const char*> raw;
        for (size_t k = 0; k < starts.size(); ++k) {
          raw.push_back(host_raw_.bytes_at(starts[k] + r * n * BytesOf(format.parts[k].stored)));
        }
        first_error = Emit(unit, s, format, r * slice + column, n, raw, sink);
      }
    }
  }
  return first_error.ok() ? first_error : Misuse(first_error);
}

}  // namespace zero
