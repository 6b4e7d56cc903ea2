#pragma once

namespace tessera::shim {

// While the program is away from its GPUs, has its calls of the driver watched: they wait until it is back, and the
// daemon is told when the first one comes (wire::Page::first_call). A look of a pacer, which comes after each ring.
// False: calls are to be watched, and cannot be yet, as threads of Tessera's are in the driver; look again in a moment.
// Any pacer's thread, without locks.
bool MindFirstCall();

}  // namespace tessera::shim
