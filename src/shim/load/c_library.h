// The C library's own dlopen and dlsym. The shim exports functions of these names (interpose_*.S), and a plain call
// from here would reach those.
#pragma once

#include <dlfcn.h>

#include "base/processor/processor.h"

namespace tessera::shim {

using DlopenFn = void* (*)(const char*, int);
using DlsymFn = void* (*)(void*, const char*);

inline DlopenFn CLibraryDlopen() {
  static const auto found = reinterpret_cast<DlopenFn>(dlvsym(RTLD_NEXT, "dlopen", TESSERA_GLIBC_FIRST));
  return found;
}

inline DlsymFn CLibraryDlsym() {
  static const auto found = reinterpret_cast<DlsymFn>(dlvsym(RTLD_NEXT, "dlsym", TESSERA_GLIBC_FIRST));
  return found;
}

}  // namespace tessera::shim
