#pragma once

namespace tessera::shim {

// Whether a debugger (anything that uses ptrace) has this process now, by TracerPid of /proc/self/status. False if that
// cannot be read. Any thread.
bool HasDebugger();

}  // namespace tessera::shim
