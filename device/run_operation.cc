#include "device/run_operation.h"

#include <exception>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

// Made only if something was thrown.
absl::Status Threw(const char* kind, absl::string_view name, absl::string_view what) {
  return absl::InternalError(
      absl::StrCat(kind, " '", name, "' threw", what.empty() ? "" : ": ", what));
}

}  // namespace

absl::Status CallGuarded(const char* kind, absl::string_view name,
                         absl::FunctionRef<absl::Status()> call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return Threw(kind, name, error.what());
  } catch (...) {
    return Threw(kind, name, "");
  }
}

absl::Status RunOperation(Operation& operation, const std::string& stream,
                          const OperationHook& hook) {
  const auto guarded = [&](absl::FunctionRef<absl::Status()> call) {
    return CallGuarded("operation", operation.name, call);
  };
  if (hook) {
    const absl::Status injected = guarded([&] { return hook(stream, operation.name); });
    if (!injected.ok()) return SkipOperation(operation, injected);
  }
  return guarded([&] { return operation.run ? operation.run() : absl::OkStatus(); });
}

absl::Status SkipOperation(Operation& operation, const absl::Status& reason) {
  if (operation.skip) operation.skip(reason);
  return reason;
}

absl::Status NoProgressError(absl::Duration timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat("no stream of the device made progress for ", absl::FormatDuration(timeout)));
}

}  // namespace zero
