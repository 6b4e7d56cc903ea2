#pragma once

namespace tessera::shim {

// Starts a detached thread of the shim's own. It blocks all signals: they are for the program's threads. `name` is at
// most 15 characters (pthread_setname_np(3)). 0, or an errno value (pthread_create(3)).
int StartThread(const char* name, void* (*main)(void*), void* argument);

}  // namespace tessera::shim
