#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::server {

// For each of so many GPUs, the lowest number of those that it is joined to by NVLink, itself included, also by way of
// others; none if it is joined to no other. `joined(a, b)` tells of two, a < b.
std::vector<std::optional<std::uint32_t>> NvlinkGroups(
    std::uint32_t gpus, const std::function<bool(std::uint32_t a, std::uint32_t b)>& joined);

}  // namespace tessera::server
