// A result that is still being computed on a device.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace zero {

// How a Pending gets at its value. Safe from any thread.
template <class T>
class PendingSource {
 public:
  virtual ~PendingSource() = default;
  virtual bool Ready() const = 0;
  virtual absl::StatusOr<T> Get() = 0;
};

// Copies share one result. May outlive the optimizer that made it and be used from any thread.
template <class T>
class Pending {
 public:
  explicit Pending(std::shared_ptr<PendingSource<T>> source) : source_(std::move(source)) {}
  // Never blocks.
  bool Ready() const { return source_->Ready(); }
  // Waits until Ready. kDeadlineExceeded when twice the group's deadline passes without progress; a
  // later Get may still succeed.
  absl::StatusOr<T> Get() { return source_->Get(); }

 private:
  std::shared_ptr<PendingSource<T>> source_;
};

}  // namespace zero
