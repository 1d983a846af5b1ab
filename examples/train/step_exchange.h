// The losses and the memory of all ranks, brought together without stopping the streams.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/process_group.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/event.h"
#include "device/memory.h"
#include "device/stream.h"
#include "examples/llama/ops.h"

namespace zero::train {

// What the exchange after a step is counted under (ProcessGroup::traffic).
inline constexpr const char* kMetrics = "metrics";

// What a rank tells besides its losses.
struct OwnNews {
  MemoryTable memory;
  uint64_t requests = 0;
};

// What all ranks together report of one step or evaluation.
struct Gathered {
  double loss_sum = 0;  // rank by rank, in each micro-batch by micro-batch: always the same bits
  int64_t tokens = 0;
  MemoryTable memory;     // the most of any rank, by category
  uint64_t requests = 0;  // bits that any rank set

  double mean_loss() const { return loss_sum / static_cast<double>(tokens); }
};

// One rank's end. Driven by one thread. At most kOutstanding results may wait for Take.
class StepExchange {
 public:
  static constexpr size_t kOutstanding = 2;

  // `device` and `group` must live longer. Room for `micro_batches` losses of each rank.
  static absl::StatusOr<std::unique_ptr<StepExchange>> Create(Device* device, ProcessGroup* group,
                                                              int64_t micro_batches);

  // Bytes of what one rank sends: its losses, then its memory table and its requests.
  static int64_t RecordBytes(int64_t micro_batches);
  // Bytes that Create allocates, as kOther, and of the host, as kHostStaging.
  static int64_t DeviceBytes(int64_t ranks, int64_t micro_batches) {
    return (ranks + 1) * RecordBytes(micro_batches);
  }
  static int64_t HostBytes(int64_t ranks, int64_t micro_batches) {
    return static_cast<int64_t>(kOutstanding) *
           (static_cast<int64_t>(sizeof(OwnNews)) + ranks * RecordBytes(micro_batches));
  }

  // Device memory: where a pass on the stream given to Enqueue puts the loss of a micro-batch.
  llama::LossSum* loss(int64_t micro_batch) const;

  // [collective] Enqueues the exchange of the first `micro_batches` losses, counted under `name`,
  // and of what this rank asks of all.
  absl::Status Enqueue(const Stream& stream, const char* name, int64_t micro_batches,
                       uint64_t requests = 0);
  // The result of the oldest Enqueue. Waits for it.
  absl::StatusOr<Gathered> Take();

 private:
  struct Result {
    int64_t micro_batches = 0;
    Buffer sent;      // host memory
    Buffer received;  // host memory
    std::unique_ptr<Event> event;
  };

  StepExchange(Device* device, ProcessGroup* group, int64_t micro_batches)
      : device_(device), group_(group), micro_batches_(micro_batches) {}

  Device* const device_;
  ProcessGroup* const group_;
  const int64_t micro_batches_;
  Buffer own_;
  Buffer all_;
  std::vector<Result> results_;
  size_t next_ = 0;
  std::deque<size_t> outstanding_;
};

}  // namespace zero::train
