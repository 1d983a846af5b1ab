// What a rank's disk has failed of.
#pragma once

#include <mutex>

#include "absl/status/status.h"

namespace zero {

// From any thread.
class DiskFailure {
 public:
  // The first one stays.
  void Set(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_.Update(status);
  }
  // OK: none yet.
  absl::Status status() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace zero
