// The scalars of a step: norms exchanged, the decision made on the device, its result fetched
// later.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/handover.h"
#include "kernels/decide.h"
#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/pending.h"
#include "zero/sharded_optimizer.h"

namespace zero {

class ParameterIndex;
class StepOutcome;

// Learning rate, clip limit and bias corrections are functions of the count of applied steps, which
// only the device knows: Decide uploads a row for each count that is still possible, and the scalar
// kernel picks its own. Nothing waits, unless kStepsInFlight results are outstanding.
class StepController {
 public:
  static absl::StatusOr<std::unique_ptr<StepController>> Create(const Context& context);
  ~StepController();  // resolves outstanding results; the streams must have drained

  // Enqueues everything up to and including the decision, where that was not made ahead. `passes`:
  // micro-batches of this step.
  // Misuse, with nothing enqueued, from the kStepsInFlight-th call after the step that stopped the
  // run: the same call on every rank.
  absl::StatusOr<Pending<StepResult>> Decide(int64_t passes, double loss_weight);

  // The decision of the step that the next Decide ends, of its loss weights alone: for a Config
  // that clips nothing and checks no overflow. Enqueues nothing where that Decide will refuse.
  absl::Status DecideAhead(int64_t passes, double loss_weight);
  bool decided_ahead() const { return decided_ > steps_; }

  // The next Decide will refuse, on every rank; so did the last, if it failed.
  bool stopped() const { return !stopped_.ok() && steps_ + 1 >= stop_step_ + kStepsInFlight; }
  // The loss scale of this pass may be read on `stream` from now on, until the next decision, which
  // waits for all that the stream has been given by then.
  absl::Status UseLossScale(const Stream& stream);
  // Calls of Decide that enqueued a step, and those before the state was restored.
  int64_t steps() const { return steps_; }
  // What the device knows of the steps enqueued so far. Enqueues the copy to memory of the host.
  absl::Status CopyState(const Stream& stream, StepState* to) const;
  // Goes on from `steps` steps that left `state`, but for its stop. Nothing is outstanding. Waits.
  absl::Status Restore(int64_t steps, const StepState& state);
  // Steps whose decision was enqueued.
  int64_t decided() const { return decided_; }
  // What the last decision that has run left on the device, read over a stream of its own: also
  // when those of the optimizer have failed. They must have drained. Waits.
  absl::StatusOr<StepRecord> LastRecord() const;

  // Valid as long as the controller.
  NormMemory norms();
  const float* loss_scale() const { return &device_state()->loss_scale.scale; }
  const StepScalars* scalars() const { return At<StepScalars>(layout().scalars); }
  const GroupScalars* groups() const { return At<GroupScalars>(layout().groups); }
  int32_t* failures() const { return At<int32_t>(layout().failures); }
  uint8_t* group_map() const { return At<uint8_t>(layout().group_map); }

 private:
  explicit StepController(const Context& context)
      : context_(context), norm_order_(context.device), scale_order_(context.device) {}
  const ScalarLayout& layout() const { return context_.plan->scalars; }
  template <class T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(scalars_.bytes_at(offset));
  }
  StepState* device_state() const { return At<StepState>(layout().state); }
  absl::Status Initialise();
  absl::Status EndLossScaleUses();
  // Memory of the host for the step that comes.
  char* staging() const { return staging_.bytes_at(steps_ % kStepRows * staging_stride_); }
  StepRecord* staged_record() const;
  // Fills and uploads the rows.
  absl::Status UploadRows();
  // Every rank's norm, of the first `norm_rows` parts, to layout().rank_norms.
  absl::Status ExchangeNorms(int64_t norm_rows, double loss_weight);
  DecideArguments ArgumentsOf(int64_t passes) const;
  // Waits until fewer than kStepsInFlight results are outstanding.
  absl::Status MakeRoom();
  // The counts that are still possible. kInvalidArgument where the very first has no values; later
  // ones that have none are marked, for the device to refuse.
  absl::Status FillRows(char* staging) const;

  const Context& context_;
  Buffer scalars_;
  Buffer staging_;  // host: rows and records, in turn
  int64_t staging_stride_ = 0;
  std::shared_ptr<const ParameterIndex> names_;
  std::optional<WrittenCheck> written_;
  Handover norm_order_;
  Handover scale_order_;  // of the loss scale, which the trainer reads
  std::vector<std::weak_ptr<const Stream>> scale_readers_;  // since the last decision
  std::deque<std::shared_ptr<StepOutcome>> outstanding_;
  int64_t steps_ = 0;
  int64_t first_step_ = 1;  // since Create or Restore
  int64_t decided_ = 0;
  int64_t known_applied_ = 0;  // applied steps of the newest result that has arrived
  absl::Status stopped_;       // why steps do nothing any more, and since which one
  int64_t stop_step_ = 0;
};

}  // namespace zero
