#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "cdi/spec.h"

namespace tessera::cdi {

// Makes the devices soft GPUs: the soft driver takes the place of the real one, and containers get the file that all
// programs of a soft GPU share. `user` is the daemon's, `name` its $TESSERA_SOFT_NAME (empty: none). ENOENT where that
// file is missing.
Result<void> AddSoftGpus(uid_t user, const std::string& name, SpecFacts& facts);

}  // namespace tessera::cdi
