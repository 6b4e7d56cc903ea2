// A program that opens the driver by its path, or by a name that ld.so would resolve to the driver's file, gets the
// shim instead. A program that asks the shim for a symbol that only a newer driver has gets the driver's.
#include <dlfcn.h>
#include <string.h>

#include "shim/load/c_library.h"
#include "shim/load/real.h"

namespace tessera::shim {
namespace {

const char* OwnPath() {
  static const char* path = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&OwnPath), &info) ? info.dli_fname : nullptr;
  }();
  return path;
}

// The shim that stands for the library at `path`, or null. Only names with a directory, and "libcuda.so" without a
// version, would pass by us: the plain SONAME finds what is already loaded.
const char* ShimFor(const char* path) {
  if (!path) return nullptr;
  const char* slash = strrchr(path, '/');
  const char* name = slash ? slash + 1 : path;
  const bool cuda = strcmp(name, "libcuda.so.1") == 0 || strcmp(name, "libcuda.so") == 0;
  const bool nvml = strcmp(name, "libnvidia-ml.so.1") == 0 || strcmp(name, "libnvidia-ml.so") == 0;
  if (!cuda && !nvml) return nullptr;
  const char* own = OwnPath();
  if (!own || cuda) return own;
  static char nvml_path[4096];
  static const bool found = [own] {
    const char* directory_end = strrchr(own, '/');
    const size_t length = directory_end ? directory_end + 1 - own : 0;
    if (length + sizeof "libnvidia-ml.so.1" > sizeof nvml_path) return false;
    memcpy(nvml_path, own, length);
    strcpy(nvml_path + length, "libnvidia-ml.so.1");
    return true;
  }();
  return found ? nvml_path : nullptr;
}

}  // namespace
}  // namespace tessera::shim

using namespace tessera::shim;

// Replaces the name on the caller's stack if need be; returns the function to jump to.
extern "C" [[gnu::visibility("hidden")]] void* tessera_redirect_dlopen(const char* path, const char** slot) {
  if (const char* shim = ShimFor(path)) *slot = shim;
  return reinterpret_cast<void*>(CLibraryDlopen());
}

extern "C" [[gnu::visibility("hidden")]] void* tessera_redirect_dlsym(void* handle, const char* name, void** found) {
  // Only "cu" names that the shim does not export itself, asked of a particular library: perhaps a newer driver's.
  if (name && name[0] == 'c' && name[1] == 'u' && handle != RTLD_DEFAULT && handle != RTLD_NEXT &&
      IndexOfName(name) == kNoSymbol && CLibraryDlsym()(handle, "tessera_shim_version") == tessera_shim_version)
    *found = RealSymbol(name);
  return reinterpret_cast<void*>(CLibraryDlsym());
}
