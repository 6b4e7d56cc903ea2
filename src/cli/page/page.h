#pragma once

#include <cstdint>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// `tessera page`: prints an address at which a browser on this computer gets the page, and serves it with the rights of
// the user who runs this, until it is stopped. Port 0: any that is free.
Result<int> ServePage(const Common& common, std::uint16_t port);

}  // namespace tessera::cli
