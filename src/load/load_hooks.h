// load() with what tests put between the loader and the system.
#pragma once

#include <string>

#include "load/job.h"
#include "swordfish/load.h"

namespace swordfish {

Result<LoadedModel> load_hooked(const std::string& path, const LoadOptions& options, const JobHooks& hooks);

}  // namespace swordfish
