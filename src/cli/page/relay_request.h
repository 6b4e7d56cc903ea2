#pragma once

#include <string>

#include "base/result.h"

namespace tessera::cli {

// Decision of `tessera page` on a request whose head has arrived, up to and with its empty line. Every user of the
// machine can connect to the port, so a request needs "Authorization: Bearer TOKEN", unless it is for the page's own
// files or /healthz, which hold no data. Returns the head for the daemon, without the token. EACCES: token missing or
// wrong; EINVAL: no request of a browser. Takes the same time wherever the token differs. Pure.
Result<std::string> ForwardedHead(const std::string& head, const std::string& token);

// An answer that says the error, as the daemon's own do: a whole one, after which the connection ends. EACCES is status
// 401, ECONNREFUSED 503, others 400.
std::string RefusalOf(const Error& error);

}  // namespace tessera::cli
