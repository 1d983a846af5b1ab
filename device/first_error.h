// The first error of several, from any thread.
#pragma once

#include <mutex>

#include "absl/status/status.h"

namespace zero {

// What follows the first is mostly its consequence.
class FirstError {
 public:
  void Add(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_.Update(status);
  }
  // OK: there was none.
  absl::Status status() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace zero
