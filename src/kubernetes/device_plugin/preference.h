// Which virtual devices a container should get.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kubernetes/device_plugin/virtual_device.h"

namespace tessera::kubernetes {

struct PreferenceFacts {
  std::uint32_t each = 0;                     // virtual devices of a GPU
  std::map<std::string, std::uint64_t> room;  // bytes of a GPU that are promised to nobody, by UUID
  std::uint64_t need = 0;  // bytes that will be promised for each virtual device; 0: none, or unknown
};

// `size` of the `available` IDs, with those that it must include. The devices of one container come from different GPUs
// as far as there are so many. Among GPUs with room for what is needed, the one comes first of which most devices are
// taken, and then the one with the least room, so that others stay empty for those who need much. Fewer where there are
// not so many. IDs that are none are ignored.
std::vector<std::string> Preferred(const std::vector<std::string>& available,
                                   const std::vector<std::string>& must_include, std::size_t size,
                                   const PreferenceFacts& facts);

}  // namespace tessera::kubernetes
