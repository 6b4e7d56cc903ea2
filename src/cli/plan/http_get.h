#pragma once

#include <string>

#include "base/result.h"

namespace tessera::cli {

// Where an address such as "http://host:9090/prometheus" leads.
struct HttpAddress {
  std::string host, port = "80";
  std::string path;  // in front of all paths, without a slash at its end
};

// EINVAL: not http, or without a host.
Result<HttpAddress> ParseHttpAddress(const std::string& url);

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// One GET over TCP, by HTTP/1.0. Not a library's: those bring TLS, which costs every `tessera run` milliseconds. Blocks
// for at most 30 seconds without progress. ECONNREFUSED and so on if nobody answers, EPROTO if it is no HTTP/1,
// EMSGSIZE beyond 256 MiB. Any thread.
Result<HttpAnswer> HttpGet(const HttpAddress& address, const std::string& path);

// `text` as a part of a query: all but letters, digits and "-._~" as %XX.
std::string QueryEscaped(const std::string& text);

}  // namespace tessera::cli
