#pragma once

namespace tessera::shim {

// From now on `seen` is called at each call that the program or the shim makes to a function of the driver, on the
// thread that makes it and before the driver has it; it may wait. Null: not any more. Costs nothing while nobody
// watches: the jump table leads elsewhere meanwhile. A thread may be past the table already when this returns, or come
// to `seen` a moment after the end. The driver is loaded. One thread at a time, with a function and with null in turn.
void WatchCalls(void (*seen)());

}  // namespace tessera::shim
