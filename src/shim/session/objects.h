// The resource manager's objects that this process has made, as far as they lead to its channels.
#pragma once

#include "channel/rm/object_event.h"
#include "shim/session/session.h"

namespace tessera::shim {

// The process has made or freed an object: remembers it, and tells the daemon.
void NoteObject(const channel::ObjectEvent& event);

// Tells a daemon that has just welcomed this process which objects exist.
void TellObjects(Session& session);

}  // namespace tessera::shim
