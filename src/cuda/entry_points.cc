#include "cuda/entry_points.h"

#include <algorithm>
#include <iterator>

namespace tessera::cuda {
namespace {

struct Entry {
  std::string_view name;
  int since;
  std::string_view symbol;
};

constexpr Entry kEntries[] = {
#define ENTRY(name, since, symbol) {#name, since, #symbol},
#include "cuda/entry_points.def"
#undef ENTRY
};

}  // namespace

std::string_view EntryPointSymbol(std::string_view name, int cuda_version) {
  const auto versions = std::ranges::equal_range(kEntries, name, {}, &Entry::name);
  if (versions.empty()) return name;
  std::string_view symbol;
  for (const Entry& entry : versions) {
    if (entry.since <= cuda_version) symbol = entry.symbol;
  }
  return symbol;
}

}  // namespace tessera::cuda
