#include "server/devices/ld_cache.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/processor/processor.h"

namespace tessera::server {
namespace {

// The format since glibc 2.32 (sysdeps/generic/dl-cache.h): a header, its entries, then their texts, whose offsets
// count from the header.
struct CacheHeader {
  char magic[20];
  std::uint32_t entries;
  std::uint32_t text_bytes;
  std::uint32_t unused[5];
};
struct CacheEntry {
  std::int32_t flags;
  std::uint32_t name, path;
  std::uint32_t os_version;
  std::uint64_t hardware;
};
static_assert(sizeof(CacheHeader) == 48 && sizeof(CacheEntry) == 24);
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";

std::string_view TextAt(std::string_view cache, std::uint32_t offset) {
  if (offset >= cache.size()) return {};
  return cache.substr(offset, strnlen(cache.data() + offset, cache.size() - offset));
}

}  // namespace

std::vector<std::string> FindInLdCache(std::string_view library, const std::string& cache_path) {
  std::ifstream file(cache_path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  CacheHeader header;
  if (content.size() < sizeof header || !content.starts_with(kMagic)) return {};
  std::memcpy(&header, content.data(), sizeof header);
  std::vector<std::string> paths;
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    const std::size_t at = sizeof header + std::size_t{i} * sizeof(CacheEntry);
    if (at + sizeof(CacheEntry) > content.size()) break;
    CacheEntry entry;
    std::memcpy(&entry, content.data() + at, sizeof entry);
    if (entry.flags == kLinkerCacheLibrary && TextAt(content, entry.name) == library)
      paths.emplace_back(TextAt(content, entry.path));
  }
  return paths;
}

}  // namespace tessera::server
