#include "server/config/config_keys.h"

#include <algorithm>
#include <iterator>

namespace tessera::server {

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> all;
    for (const auto& part : {TimeKeys(), MemoryKeys(), ApiKeys(), SectionKeys()})
      std::ranges::copy(part, std::back_inserter(all));
    return all;
  }();
  return keys;
}

}  // namespace tessera::server
