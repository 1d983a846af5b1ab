// zero-checkpoint export.
#pragma once

#include <memory>

#include "tools/subcommand.h"

namespace zero::tools {

std::unique_ptr<Subcommand> MakeExport();

}  // namespace zero::tools
