// zero-checkpoint inspect.
#pragma once

#include <memory>

#include "tools/subcommand.h"

namespace zero::tools {

std::unique_ptr<Subcommand> MakeInspect();

}  // namespace zero::tools
