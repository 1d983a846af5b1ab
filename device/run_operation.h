// What schedulers have in common: how one operation runs or is skipped, and some words.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "device/operation.h"
#include "device/scheduler.h"

namespace zero {

// Calls the hook and then `run`; `skip` if the hook refuses. What either throws becomes kInternal.
// The operation is ready.
absl::Status RunOperation(Operation& operation, const std::string& stream,
                          const OperationHook& hook);

// Calls `skip`, and returns `reason`.
absl::Status SkipOperation(Operation& operation, const absl::Status& reason);

// Calls it; what it throws becomes kInternal: "<kind> '<name>' threw: <what>".
absl::Status CallGuarded(const char* kind, absl::string_view name,
                         absl::FunctionRef<absl::Status()> call);

// Of an Await whose time limit has passed.
absl::Status NoProgressError(absl::Duration timeout);

}  // namespace zero
