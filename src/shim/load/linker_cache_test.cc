#include "shim/load/linker_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/processor/processor.h"

namespace tessera::shim {
namespace {

struct Library {
  std::string name, path;
  std::int32_t flags = kLinkerCacheLibrary;
};

template <typename Word>
void Put(std::string& to, Word word) {
  to.append(reinterpret_cast<const char*>(&word), sizeof word);
}

// The bytes that ldconfig writes for these libraries.
std::string CacheOf(const std::vector<Library>& libraries, bool old_table = false) {
  std::string cache = "glibc-ld.so.cache1.1", strings;
  for (const std::uint32_t word : {static_cast<std::uint32_t>(libraries.size()), 0u, 0u, 0u, 0u, 0u, 0u})
    Put(cache, word);
  const auto base = static_cast<std::uint32_t>(cache.size() + libraries.size() * 24);
  for (const Library& each : libraries) {
    Put(cache, each.flags);
    Put(cache, static_cast<std::uint32_t>(base + strings.size()));
    strings += each.name + '\0';
    Put(cache, static_cast<std::uint32_t>(base + strings.size()));
    strings += each.path + '\0';
    Put(cache, std::uint32_t{0});
    Put(cache, std::uint64_t{0});
  }
  cache += strings;
  if (!old_table) return cache;
  std::string old = "ld.so-1.7.0";
  old += '\0';
  Put(old, std::uint32_t{1});
  old.append(12, 'x');
  old.append((8 - old.size() % 8) % 8, '\0');
  return old + cache;
}

std::string Find(const std::string& cache, std::string_view name = "libcuda.so.1") {
  const char* found = FindInLinkerCache(std::as_bytes(std::span(cache)), name);
  return found ? found : "";
}

const std::vector<Library> kLibraries = {{"libz.so.1", "/lib/libz.so.1"},
                                         {"libcuda.so.1", "/lib32/libcuda.so.1", 0x0003},
                                         {"libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"},
                                         {"libcuda.so.1", "/usr/lib64/libcuda.so.1"}};

TEST(LinkerCacheTest, TheFirst64BitLibraryOfTheNameIsTaken) {
  EXPECT_EQ(Find(CacheOf(kLibraries)), "/usr/local/cuda/compat/libcuda.so.1");
  EXPECT_EQ(Find(CacheOf(kLibraries), "libcuda.so"), "");
  EXPECT_EQ(Find(CacheOf({})), "");
}

TEST(LinkerCacheTest, ATableInTheOlderFormatIsPassedOver) {
  EXPECT_EQ(Find(CacheOf(kLibraries, true)), "/usr/local/cuda/compat/libcuda.so.1");
}

TEST(LinkerCacheTest, DamagedContentsGiveNothingAndAreNotReadBeyond) {
  const std::string whole = CacheOf(kLibraries, true);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) Find(std::string(whole.data(), bytes));
  std::string wrong = CacheOf(kLibraries);
  wrong[0] = 'G';
  EXPECT_EQ(Find(wrong), "");
  std::string far = CacheOf({{"libcuda.so.1", "/x"}});
  const std::uint32_t beyond = 1u << 30;
  std::memcpy(far.data() + 48 + 8, &beyond, sizeof beyond);
  EXPECT_EQ(Find(far), "");
}

}  // namespace
}  // namespace tessera::shim
