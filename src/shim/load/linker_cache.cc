#include "shim/load/linker_cache.h"

#include <string.h>

#include <cstdint>

#include "base/processor/processor.h"

namespace tessera::shim {
namespace {

constexpr char kMagic[] = "glibc-ld.so.cache1.1";
constexpr char kOldMagic[] = "ld.so-1.7.0";

struct Header {
  char magic[sizeof kMagic - 1];
  std::uint32_t libraries, string_bytes, flags, extensions, unused[3];
};
static_assert(sizeof(Header) == 48);

struct Entry {
  std::int32_t flags;
  std::uint32_t key, value;  // offsets of strings, from the header on
  std::uint32_t os_version;
  std::uint64_t hwcap;
};
static_assert(sizeof(Entry) == 24);

struct OldHeader {
  char magic[sizeof kOldMagic - 1];
  char padding;
  std::uint32_t libraries;
};
constexpr std::size_t kOldEntryBytes = 12;
static_assert(sizeof(OldHeader) == 16);

template <typename Type>
bool Read(std::span<const std::byte> from, std::size_t offset, Type* value) {
  if (offset > from.size() || from.size() - offset < sizeof *value) return false;
  memcpy(value, from.data() + offset, sizeof *value);
  return true;
}

// Null where no string ends inside.
const char* StringAt(std::span<const std::byte> cache, std::size_t offset) {
  if (offset >= cache.size()) return nullptr;
  const char* text = reinterpret_cast<const char*>(cache.data()) + offset;
  return strnlen(text, cache.size() - offset) < cache.size() - offset ? text : nullptr;
}

}  // namespace

const char* FindInLinkerCache(std::span<const std::byte> cache, std::string_view name) {
  OldHeader old;
  if (Read(cache, 0, &old) && memcmp(old.magic, kOldMagic, sizeof old.magic) == 0) {
    const std::size_t end = (sizeof old + old.libraries * kOldEntryBytes + 7) / 8 * 8;
    if (end > cache.size()) return nullptr;
    cache = cache.subspan(end);
  }
  Header header;
  if (!Read(cache, 0, &header) || memcmp(header.magic, kMagic, sizeof header.magic) != 0) return nullptr;
  for (std::uint32_t i = 0; i < header.libraries; ++i) {
    Entry entry;
    if (!Read(cache, sizeof header + i * sizeof entry, &entry)) return nullptr;
    if (entry.flags != kLinkerCacheLibrary) continue;
    const char* key = StringAt(cache, entry.key);
    // Of several directories with the library, the one that the linker prefers stands first.
    if (key && name == key) return StringAt(cache, entry.value);
  }
  return nullptr;
}

}  // namespace tessera::shim
