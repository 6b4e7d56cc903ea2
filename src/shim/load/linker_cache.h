// The dynamic linker's cache (/etc/ld.so.cache, ldconfig(8)): which file a program gets for a library's name, if
// neither LD_LIBRARY_PATH nor a path of its own says so.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tessera::shim {

// The path that the linker would take for the library `name` of this processor, or null. It points into `cache`, which
// are the contents of the file, in the format of glibc since 2.2 (elf/dl-cache.h: "glibc-ld.so.cache1.1", which older
// ldconfigs put behind a table in an older format). Contents that are damaged give null.
const char* FindInLinkerCache(std::span<const std::byte> cache, std::string_view name);

}  // namespace tessera::shim
