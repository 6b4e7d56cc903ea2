// The resource manager's objects that this process has made, as far as they lead to its channels.
#pragma once

#include "shim/session/session.h"

namespace tessera::shim {

// Tells a daemon that has just welcomed this process which objects exist.
void TellObjects(Session& session);

}  // namespace tessera::shim
