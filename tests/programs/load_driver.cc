// Loads the driver in one of the ways that programs do, and says whose cuInit that gave and what it answers.
//   load_driver soname NAME | deepbind PLUGIN | symbol NAME
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

void Report(void* address) {
  Dl_info info{};
  dladdr(address, &info);
  std::printf("library %s\n", info.dli_fname ? info.dli_fname : "none");
  std::printf("cuInit %d\n", address ? reinterpret_cast<int (*)(unsigned)>(address)(0) : -1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::strcmp(argv[1], "deepbind") == 0) {
    void* plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!plugin) return std::printf("error %s\n", dlerror()), 1;
    Report(reinterpret_cast<void* (*)()>(dlsym(plugin, "plugin_find_cuinit"))());
    return 0;
  }
  void* library = dlopen(std::strcmp(argv[1], "soname") == 0 ? argv[2] : "libcuda.so.1", RTLD_NOW);
  if (!library) return std::printf("error %s\n", dlerror()), 1;
  if (std::strcmp(argv[1], "symbol") == 0) {
    std::printf("symbol %s\n", dlsym(library, argv[2]) ? "found" : "missing");
    return 0;
  }
  Report(dlsym(library, "cuInit"));
  return 0;
}
