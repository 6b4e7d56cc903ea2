#pragma once

#include <cstdint>

namespace tessera::kubernetes {

inline constexpr std::uint64_t kMebibyte = 1ull << 20;

// What is left of `all` when `taken` is gone; never less than nothing.
inline std::uint64_t Without(std::uint64_t all, std::uint64_t taken) { return all > taken ? all - taken : 0; }

}  // namespace tessera::kubernetes
