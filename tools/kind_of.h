// Kinds by their names.
#pragma once

#include <string>

#include "zero/config.h"

namespace zero::tools {

// The kind of that name; there must be one, as where a flag allows no other.
template <class Kind>
Kind KindOf(const std::string& name) {
  int kind = 0;
  while (name != Name(static_cast<Kind>(kind))) ++kind;
  return static_cast<Kind>(kind);
}

}  // namespace zero::tools
