// zero-checkpoint import.
#pragma once

#include <memory>

#include "tools/subcommand.h"

namespace zero::tools {

std::unique_ptr<Subcommand> MakeImport();

}  // namespace zero::tools
