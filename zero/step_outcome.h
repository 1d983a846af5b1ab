// The result of one step, on its way from the device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "device/event.h"
#include "kernels/decide.h"
#include "zero/context.h"
#include "zero/pending.h"
#include "zero/sharded_optimizer.h"

namespace zero {

// Names of parameters by index in the layout of the whole model: what first_non_finite counts in.
class ParameterIndex {
 public:
  ParameterIndex(const Model& model, const Layout& layout);
  // Index of the first element of a trainable segment.
  int64_t base(int unit, int segment) const { return bases_[unit][segment]; }
  // The parameter that holds the element; empty for an index past the end.
  std::string Find(int64_t index) const;

 private:
  struct Entry {
    int64_t first;
    std::string name;
  };
  std::vector<std::vector<int64_t>> bases_;
  std::vector<Entry> entries_;  // ascending
  int64_t end_ = 0;
};

class StepOutcome : public PendingSource<StepResult> {
 public:
  // `record` is valid once `event` is reached, until Resolve has returned. `disk`: of this rank,
  // null where it has none.
  StepOutcome(std::shared_ptr<Event> event, const StepRecord* record, int64_t step,
              absl::Duration deadline, std::shared_ptr<const ParameterIndex> names,
              std::shared_ptr<const FirstError> disk)
      : event_(std::move(event)),
        record_(record),
        step_(step),
        deadline_(deadline),
        names_(std::move(names)),
        disk_(std::move(disk)) {}

  bool Ready() const override;
  absl::StatusOr<StepResult> Get() override;

  // Once resolved: the step stopped the run, or came after the one that did.
  bool stopped() const;

  // Waits, and keeps a copy: the record's memory may be used again. Called by the driving thread.
  void Resolve();

 private:
  absl::StatusOr<StepResult> Read(const absl::Status& reached) const;
  absl::Status Stopped() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Event> event_;  // null once resolved
  const StepRecord* const record_;
  const int64_t step_;
  const absl::Duration deadline_;
  const std::shared_ptr<const ParameterIndex> names_;
  const std::shared_ptr<const FirstError> disk_;
  std::optional<absl::StatusOr<StepResult>> result_;
  bool stopped_ = false;
};

}  // namespace zero
