#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/vgpu/settings.h"

namespace tessera::cli {

// tessera space ls|show|create|rm.
Result<int> ListSpaces(const Common& common);
Result<int> ShowSpace(const Common& common, const std::string& name);
// Of the settings, the GPU alone counts.
Result<int> CreateSpace(const Common& common, const std::string& name, const VgpuSettings& settings);
Result<int> RemoveSpace(const Common& common, const std::string& name);

}  // namespace tessera::cli
