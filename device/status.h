// Early return on an absl::Status. Debian's Abseil has no such macros of its own.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// __COUNTER__, not __LINE__: the expression may be a lambda that holds another use.
#define ZERO_RETURN_IF_ERROR(expression) \
  ZERO_RETURN_IF_ERROR_(ZERO_CONCAT_(zero_status_, __COUNTER__), expression)
#define ZERO_RETURN_IF_ERROR_(status, expression) \
  do {                                            \
    absl::Status status = (expression);           \
    if (!status.ok()) return status;              \
  } while (false)

#define ZERO_CONCAT_INNER_(a, b) a##b
#define ZERO_CONCAT_(a, b) ZERO_CONCAT_INNER_(a, b)
#define ZERO_ASSIGN_OR_RETURN(declaration, expression) \
  ZERO_ASSIGN_OR_RETURN_(ZERO_CONCAT_(zero_statusor_, __COUNTER__), declaration, expression)
#define ZERO_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return std::move(result).status();          \
  declaration = *std::move(result)
