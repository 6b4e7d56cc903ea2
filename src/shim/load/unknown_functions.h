#pragma once

namespace tessera::shim {

// The names of functions that the program asked the driver for (cuGetProcAddress) and that this shim does not know: the
// program calls them past the gate and the ledger. The first kMostUnknown of them are kept, for the daemon's log. Any
// thread; takes no lock.
inline constexpr int kMostUnknown = 64;
inline constexpr int kUnknownNameBytes = 64;

// Keeps the name, and tells it if it is new.
void NoteUnknown(const char* name);
// All that were kept so far.
void EachUnknown(void (*say)(const char* name));
// From now on each new one is told, on the thread that asked for it.
void OnUnknown(void (*say)(const char* name));

}  // namespace tessera::shim
