// Gradients out to offloaded states, updates on the host, and weights back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/handover.h"
#include "zero/offload/offload_report.h"
#include "zero/offload/offload_store.h"
#include "zero/offload/offload_streams.h"
#include "zero/offload/wait_clock.h"
#include "zero/step_controller.h"

namespace zero {

class WeightStore;

// Everything is enqueued by the driving thread, in one order, and waits only for what was enqueued
// before it: whatever stream is slow, nothing can wait in a circle. Pieces pass through slots, used
// in turn; a slot's Handover keeps its uses apart. With records in memory an update works on them
// where they lie; on a disk they are read into a slot, updated there and written back, so that
// reads, updates and writes of neighbouring pieces overlap. Weights that stay on the device are
// written to a slot and copied in from it.
class OffloadPipeline {
 public:
  // Null where nothing is offloaded. `store` and `streams` outlive it, and the streams have drained
  // when it goes.
  static absl::StatusOr<std::unique_ptr<OffloadPipeline>> Create(const Context& context,
                                                                 OffloadStore* store,
                                                                 const OffloadStreams* streams);

  // The host's part of a unit's gradients: `slices[s]`, on the device, are this rank's of segment
  // s; null where it has none. `source` orders them.
  absl::Status StoreGradients(int unit, Handover& source, absl::Span<char* const> slices);
  // Back, on copy_in(), where `slices` may be written.
  absl::Status LoadGradients(int unit, absl::Span<char* const> slices);
  const Stream& copy_in() const { return *streams_->copy_in; }

  // What is enqueued on `stream` from now on starts after all gradients are stored.
  absl::Status AwaitGradients(const Stream& stream);
  // After the decision: its scalars go to the host.
  absl::Status BeginStep(const StepController& step);
  // The update of a unit's offloaded part, with its way out and back.
  absl::Status Update(int unit, WeightStore& weights);

  // A unit's offloaded weights to `slices` on the device, on copy_in(). `order` orders the weights.
  absl::Status LoadWeights(int unit, Handover& order, absl::Span<char* const> slices);

  // What the trainer's streams wait for, for the stores to time.
  WaitClock& await_weights() { return await_weights_; }
  WaitClock& await_gradient_slot() { return await_gradient_slot_; }
  OffloadReport report() const;

  // Masters from weights on the device that were given. Waits.
  absl::Status CopyWeights(const WeightStore& weights);

 private:
  // Memory of the host that pieces pass through.
  struct Slot {
    char* memory = nullptr;
    Handover order;
  };
  // A ring of them.
  struct Ring {
    Buffer memory;
    std::vector<Slot> slots;
    size_t next = 0;
    Slot& Next() {
      Slot& slot = slots[next];
      next = (next + 1) % slots.size();
      return slot;
    }
  };

  OffloadPipeline(const Context& context, OffloadStore* store, const OffloadStreams* streams);
  absl::Status Initialise();
  absl::Status Allocate(Ring& ring, int64_t count, int64_t bytes, const char* what);
  void FillGroupMap();
  const OffloadPlan& plan() const { return context_.plan->offload; }
  const Config& config() const { return context_.plan->config; }
  const Segment& segment(int unit, const OffloadPiece& piece) const {
    return context_.unit(unit).segments[piece.segment];
  }
  RecordLayout LayoutOf(int unit, const OffloadPiece& piece) const;
  // Records are; there are none in a model without elements.
  bool on_disk() const {
    return config().offload.optimizer == Place::kNvme && store_->file() != nullptr;
  }
  Place weights_place() const { return config().offload.parameters; }

  absl::Status UpdatePiece(int unit, const OffloadPiece& piece, WeightStore& weights);
  // Fills `slot` with what the update of a piece reads.
  absl::Status FetchPiece(int unit, const OffloadPiece& piece, WeightStore& weights, Slot& slot);
  absl::Status ComputePiece(int unit, const OffloadPiece& piece, char* record, char* weight);
  absl::Status StorePiece(int unit, const OffloadPiece& piece, WeightStore& weights, Slot& slot);

  const Context& context_;
  OffloadStore* const store_;
  const OffloadStreams* const streams_;
  Ring slots_;
  Ring weight_slots_;
  Buffer scalars_;  // of the host: StepScalars, GroupScalars[groups], the parameter groups
  Handover scalars_order_;
  std::vector<Handover> gradient_order_;  // by unit, of what StoreGradients writes
  std::vector<Handover> record_order_;    // by unit, of what an update writes to a disk
  WaitClock optimizer_, await_gradients_, await_piece_, await_weights_, await_gradient_slot_;
};

}  // namespace zero
