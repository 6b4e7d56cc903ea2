#pragma once

#include <string>

#include "base/result.h"

namespace tessera::face {

// The headers of a request by which a browser says for whom it asks. Empty: the header is not there.
struct RequestOrigin {
  std::string host;        // Host
  std::string origin;      // Origin
  std::string fetch_site;  // Sec-Fetch-Site
};

// On api.sock a caller is the process that connected. If that is a person's `ssh -L` or the like, any web page that the
// person opens can reach it by way of the browser, so requests of other pages than Tessera's own are refused: EPERM if
// another page asks (Origin, Sec-Fetch-Site), or if Host is a name that a page's owner could have made lead here (DNS
// rebinding). Names without a dot, addresses and paths are nobody's to make; other programs than browsers may send
// none. Pure.
Result<void> CheckOrigin(const RequestOrigin& request);

}  // namespace tessera::face
