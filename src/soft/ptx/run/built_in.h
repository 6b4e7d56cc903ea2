#pragma once

#include <string_view>

#include "soft/ptx/program.h"

namespace tessera::soft::ptx {

// The code of a device function that the driver provides to all modules (vprintf, __assertfail); nullptr if there is
// none of that name.
Function::BuiltIn FindBuiltIn(std::string_view name);

}  // namespace tessera::soft::ptx
