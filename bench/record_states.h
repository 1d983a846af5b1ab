// Offloaded states of AdamW in memory, which a benchmark updates.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "device/buffer.h"
#include "device/device.h"
#include "kernels/step_scalars.h"
#include "zero/context.h"
#include "zero/model.h"
#include "zero/plan.h"

namespace zero::bench {

// One unit of bf16 weights of one rank, all of it in memory of the host: records of pieces as the
// plan lays them out, and the weights behind one another.
class RecordStates {
 public:
  // `gradients`: the dtype that they are stored in.
  static absl::StatusOr<std::unique_ptr<RecordStates>> Create(Device* device, MasterKind master,
                                                              DType gradients, int64_t elements);

  // The update of all pieces, as OffloadPipeline::ComputePiece enqueues it.
  absl::Status EnqueueUpdate(const Stream& stream) const;
  // One update of what Create has filled in; kInternal names what is not what the scalar formulas
  // make of it, bit for bit.
  absl::Status Verify(const Stream& stream) const;

  // Read and written per parameter; lines that are read only to be overwritten are not counted.
  double bytes_per_parameter() const;

 private:
  RecordStates() = default;
  absl::Status Allocate(Device* device, const Config& config, int64_t elements);
  void FillFirst() const;
  const std::vector<OffloadPiece>& pieces() const { return plan_.offload.pieces[0]; }
  const Segment& segment() const { return plan_.layout.units[0].segments[0]; }
  char* At(const OffloadPiece& piece, Section section) const;
  uint16_t* WeightsAt(const OffloadPiece& piece) const;
  absl::Status VerifyFirst() const;
  // Whether a piece is what the first one is, as far as it goes.
  bool SameAsFirst(const OffloadPiece& piece) const;

  Model model_;
  Plan plan_;
  Context context_;
  Buffer records_;
  Buffer weights_;
  Buffer groups_;
  StepScalars scalars_;
  GroupScalars row_;
};

}  // namespace zero::bench
