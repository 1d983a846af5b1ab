#include "bench/offload_update.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "bench/array.h"
#include "bench/memory_limit.h"
#include "bench/record_states.h"
#include "device/host_device.h"
#include "device/status.h"

namespace zero::bench {
namespace {

constexpr double kTriadBytes = 12;

struct Kind {
  DType gradients;
  MasterKind master;
};
constexpr Kind kKinds[] = {{DType::kF32, MasterKind::kF32},
                           {DType::kBF16, MasterKind::kF32},
                           {DType::kF32, MasterKind::kSplit},
                           {DType::kBF16, MasterKind::kSplit}};
constexpr size_t kGradientTypes = 2;

}  // namespace

double UpdateBytes(int64_t elements) {
  double bytes = kTriadBytes;
  for (const Kind& kind : kKinds) {
    // Gradient, master, moments, weight.
    bytes += static_cast<double>(SizeOf(kind.gradients)) +
             (kind.master == MasterKind::kF32 ? 4 : 2) + 2 * 4 + 2;
  }
  return bytes * static_cast<double>(elements);
}

absl::StatusOr<UpdateTimes> MeasureUpdates(int64_t elements, int64_t threads, int64_t repeats) {
  ThreadPool pool(static_cast<int>(threads));
  HostDevice::Options options;
  options.pool = &pool;
  HostDevice device(options);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream("bench"));
  UpdateTimes times;
  times.triad_bytes = kTriadBytes;
  std::vector<std::unique_ptr<RecordStates>> states;
  for (const Kind& kind : kKinds) {
    ZERO_ASSIGN_OR_RETURN(std::unique_ptr<RecordStates> made,
                          RecordStates::Create(&device, kind.master, kind.gradients, elements));
    ZERO_RETURN_IF_ERROR(made->Verify(*stream));
    UpdateRow& row = times.rows.emplace_back();
    row.gradients = Name(kind.gradients);
    row.masters = Name(kind.master);
    row.bytes = made->bytes_per_parameter();
    states.push_back(std::move(made));
  }
  Array triad[3];
  for (int i = 0; i < 3; ++i) {
    ZERO_RETURN_IF_ERROR(triad[i].Allocate(&device, DType::kF32, elements, i));
  }
  const auto run_triad = [&] {
    const double start = Now();
    StreamedTriad(&pool, triad[0].floats(), triad[1].floats(), triad[2].floats(), elements);
    return Now() - start;
  };
  for (int64_t repeat = 0; repeat <= repeats; ++repeat) {
    double before = run_triad();
    std::vector<double> seconds;
    for (size_t i = 0; i < states.size(); ++i) {
      const double start = Now();
      ZERO_RETURN_IF_ERROR(states[i]->EnqueueUpdate(*stream));
      ZERO_RETURN_IF_ERROR(stream->Synchronize());
      seconds.push_back(Now() - start);
      const double after = run_triad();
      if (repeat > 0) {  // the first round warms up
        UpdateRow& row = times.rows[i];
        times.triad_seconds.Add(after);
        row.seconds.Add(seconds[i]);
        row.shares.Add(row.bytes / seconds[i] * (before + after) / 2 / kTriadBytes);
        row.to_fp32.Add(seconds[i] / seconds[i % kGradientTypes]);
      }
      before = after;
    }
  }
  return times;
}

}  // namespace zero::bench
