// What differs between the processors that Tessera runs on. Other files that there are for each of them are named after
// them likewise, as `uname -m` does.
//
//   TESSERA_LIBRARY_FOLDER  where Debian keeps libraries for the processor
//   TESSERA_GLIBC_FIRST     the version of glibc's oldest symbols: its first release for the processor
//   kMostPageBytes          the largest page that a kernel may use. Parts of a file that are mapped apart begin at
//                           multiples of it.
//   kLinkerCacheLibrary     how the linker's cache (ldconfig(8)) marks libraries for the processor
//   Pause()                 tells the processor that this thread waits in a loop. Any thread.
#pragma once

#if defined(__x86_64__)
#include "base/processor/x86_64.h"
#elif defined(__aarch64__)
#include "base/processor/aarch64.h"
#else
#error "Tessera runs on x86-64 and on 64-bit ARM"
#endif
