#include "face/http/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace tessera::face {
namespace {

// "localhost:9000" without its port; "[::1]:9000" without that and its brackets.
std::string NameIn(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

// Whether no name server can say that it is at another address.
bool IsFixed(const std::string& host) {
  const std::string name = NameIn(host);
  in6_addr address{};
  // Libraries for Unix sockets send the socket's path, which no browser takes for a name.
  return host.find_first_of("/%") != std::string::npos || name.find('.') == std::string::npos ||
         inet_pton(AF_INET, name.c_str(), &address) == 1 || inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

Result<void> CheckOrigin(const RequestOrigin& request) {
  const bool other_site =
      !request.fetch_site.empty() && request.fetch_site != "same-origin" && request.fetch_site != "none";
  const bool other_origin = !request.origin.empty() && request.origin != "http://" + request.host;
  if (other_site || other_origin)
    return Fail(EPERM, "another web page asks in your name", "use Tessera's own page, or a program");
  if (!IsFixed(request.host))
    return Fail(EPERM, "requests for the host \"" + request.host + "\" are not answered on this socket",
                "use http://localhost, or an address; 'tessera page' says one");
  return {};
}

}  // namespace tessera::face
