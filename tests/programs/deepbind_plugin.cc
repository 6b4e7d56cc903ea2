// Opened with RTLD_DEEPBIND: its calls of dlopen find the C library's, not a preloaded one.
#include <dlfcn.h>

extern "C" [[gnu::visibility("default")]] void* plugin_find_cuinit() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? dlsym(library, "cuInit") : nullptr;
}
