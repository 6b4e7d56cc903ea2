#include "shim/load/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/processor/processor.h"
#include "shim/load/c_library.h"
#include "shim/load/driver_library.h"
#include "shim/load/linker_cache.h"
#include "shim/process/say.h"

namespace tessera::shim {
namespace {

constexpr const char* kNames[] = {
#include "symbol_names.inc"
};

// Where distributions and containers put the driver, for machines whose linker does not know.
constexpr const char* kDirectories[] = {
    TESSERA_LIBRARY_FOLDER,   "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib", "/usr/lib",
};

void* real_library = nullptr;
bool loaded = false;
pthread_once_t once = PTHREAD_ONCE_INIT;

struct Address {
  const void* address;
  unsigned index;
};
Address by_address[kSymbols];
unsigned addresses = 0;

int NoDriver() { return driver_library.no_driver; }

// A file's identity. statx, because stat has no symbol that both glibc 2.28 and 2.36 carry.
struct FileId {
  unsigned major = 0, minor = 0;
  unsigned long long inode = 0;
  bool operator==(const FileId&) const = default;
};

// Zeros if there is no such file.
FileId IdOf(const char* path) {
  struct statx st;
  if (statx(AT_FDCWD, path, 0, STATX_INO, &st) != 0) return {};
  return {st.stx_dev_major, st.stx_dev_minor, st.stx_ino};
}

// A candidate that loads, is not the shim and has the driver's entry points.
void* TryOpen(const char* path, const FileId& self, bool must) {
  if (IdOf(path) == self) {
    if (must)
      Say("%s is Tessera's shim itself; %s must name the driver's %s", path, driver_library.variable,
          driver_library.file);
    return nullptr;
  }
  void* library = CLibraryDlopen()(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    if (must) Say("cannot load %s: %s", path, dlerror());
    return nullptr;
  }
  const auto& required = driver_library.required;
  if (CLibraryDlsym()(library, required[0]) && CLibraryDlsym()(library, required[1]) &&
      !CLibraryDlsym()(library, "tessera_shim_version"))
    return library;
  Say("%s is not an NVIDIA driver library (no %s or %s); set %s", path, required[0], required[1],
      driver_library.variable);
  return nullptr;
}

// The file that the linker would take by its cache, such as one in /usr/local/cuda/compat that /etc/ld.so.conf.d names.
// dlopen by name would answer with the shim, which has the driver's name.
bool FindCached(char* path, std::size_t bytes) {
  const int file = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  const off_t end = file >= 0 ? lseek(file, 0, SEEK_END) : 0;
  void* const cache = end > 0 ? mmap(nullptr, end, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  if (file >= 0) close(file);
  if (cache == MAP_FAILED) return false;
  const std::span contents(static_cast<const std::byte*>(cache), end);
  const char* found = FindInLinkerCache(contents, driver_library.file);
  const bool fits = found && strlen(found) < bytes;
  if (fits) strcpy(path, found);
  munmap(cache, end);
  return fits && IdOf(path).inode != 0;
}

void* OpenReal() {
  Dl_info info;
  const FileId self = dladdr(reinterpret_cast<void*>(&OpenReal), &info) ? IdOf(info.dli_fname) : FileId{};
  if (const char* named = secure_getenv(driver_library.variable); named && *named) return TryOpen(named, self, true);
  char path[4096];
  const char* list = secure_getenv("LD_LIBRARY_PATH");
  for (const char* at = list ? list : ""; *at;) {
    const size_t length = strcspn(at, ":");
    if (length > 0 && length < sizeof path - 64) {
      memcpy(path, at, length);
      path[length] = '/';
      strcpy(path + length + 1, driver_library.file);
      if (const FileId id = IdOf(path); id.inode != 0 && id != self)
        if (void* library = TryOpen(path, self, false)) return library;
    }
    at += length + (at[length] == ':');
  }
  if (FindCached(path, sizeof path))
    if (void* library = TryOpen(path, self, false)) return library;
  for (const char* directory : kDirectories) {
    strcpy(path, directory);
    strcat(path, "/");
    strcat(path, driver_library.file);
    if (IdOf(path).inode == 0) continue;
    if (void* library = TryOpen(path, self, false)) return library;
  }
  Say("no NVIDIA driver found (%s); install one, set %s, or use 'tessera run --soft'", driver_library.file,
      driver_library.variable);
  return nullptr;
}

void Load() {
  const int before = errno;
  real_library = OpenReal();
  for (unsigned i = 0; i < kSymbols; ++i) {
    void* address = real_library ? CLibraryDlsym()(real_library, kNames[i]) : nullptr;
    if (address) by_address[addresses++] = {address, i};
    // Whoever finds the address here, finds the library there.
    __atomic_store_n(&tessera_real_table[i], address ? address : reinterpret_cast<void*>(&NoDriver), __ATOMIC_RELEASE);
  }
  std::sort(by_address, by_address + addresses,
            [](const Address& a, const Address& b) { return a.address < b.address; });
  loaded = real_library != nullptr;
  errno = before;
}

}  // namespace

bool LoadReal() {
  pthread_once(&once, Load);
  return loaded;
}

void* RealSymbol(const char* name) { return LoadReal() ? CLibraryDlsym()(real_library, name) : nullptr; }

unsigned IndexOfRealAddress(const void* address) {
  const Address* const end = by_address + addresses;
  const Address* at = std::lower_bound(static_cast<const Address*>(by_address), end, address,
                                       [](const Address& a, const void* wanted) { return a.address < wanted; });
  // Several names may share one address; a hooked one among them wins.
  unsigned found = kNoSymbol;
  for (; at != end && at->address == address; ++at)
    if (found == kNoSymbol || tessera_changed_table[at->index]) found = at->index;
  return found;
}

unsigned IndexOfName(std::string_view name) {
  const auto end = kNames + kSymbols;
  const auto at = std::lower_bound(kNames, end, name, [](const char* a, std::string_view b) { return a < b; });
  return at != end && name == *at ? static_cast<unsigned>(at - kNames) : kNoSymbol;
}

}  // namespace tessera::shim
