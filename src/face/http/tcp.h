#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::face {

// Listens at "ADDRESS:PORT", an IPv4 address or an IPv6 one in brackets; port 0: any that is free. EINVAL for a
// malformed address, else errors of bind(2).
Result<UniqueFd> ListenTcp(const std::string& address);

// The token in a file: one line of 16 to 256 visible ASCII characters. EPERM if others than its owner may read it.
Result<std::string> ReadToken(const std::string& path);

// Whether `given`, the value of an Authorization header, is "Bearer " and the token. Takes the same time wherever the
// two differ, so that a client cannot guess the token piece by piece.
bool IsBearer(const std::string& given, const std::string& token);

}  // namespace tessera::face
