// How the ranks of a group talk beside its collectives: while it starts, and when it fails.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank's value under `key`, by rank; every rank calls it with the same keys, in the same
  // order. Blocks, with a deadline: kDeadlineExceeded names the ranks that did not come, kAborted
  // the reason of an abort. One thread.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(const std::string& key,
                                                            const std::string& value) = 0;

  // What this rank answers when another one asks about `subject`; null: nothing more. `answer` runs
  // on a thread that must not be kept; when this returns, the one before does not run and will not.
  // Any other thread.
  virtual void SetAnswer(const std::string& subject, std::function<std::string()> answer) = 0;
  // Asks every other rank about `subject` and returns at once: what Answers knows it by. Any
  // thread.
  virtual int64_t Ask(const std::string& subject) = 0;
  // What has come so far, by rank; "" of a rank that has nothing to say about the subject. Nothing
  // comes from a process that is stopped, or while rank 0's is. Any thread.
  virtual std::vector<std::optional<std::string>> Answers(int64_t question) const = 0;

  // Tells every rank that this one gives up; does not wait for them. The first reason stays. Any
  // thread.
  virtual void Abort(const absl::Status& reason) = 0;
  // The first failure of any rank that is known here: its Abort, or its end without one. Never
  // blocks. Any thread.
  virtual absl::Status Health() const = 0;
};

}  // namespace zero
