#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

// The full paths that the dynamic linker's cache has for a library name. Unlike dlopen of the bare name it does not
// find what is preloaded or on LD_LIBRARY_PATH, where Tessera's own stand-ins may be.
std::vector<std::string> FindInLdCache(std::string_view library, const std::string& cache = "/etc/ld.so.cache");

}  // namespace tessera::server
