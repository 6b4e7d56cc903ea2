#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tessera::channel {

// "NV_ERR_INVALID_CLIENT", or null for a status that the table does not know.
const char* StatusName(std::uint32_t status);

// The meaning of RM's answer to `call` ("disable channels"): no error for abi::kOk, else one that names call and
// status.
Result<void> CheckStatus(std::uint32_t status, const std::string& call);

}  // namespace tessera::channel
