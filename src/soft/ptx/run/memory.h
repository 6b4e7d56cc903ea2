// From an address of a space to bytes of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "soft/ptx/run/block.h"
#include "soft/ptx/run/warp.h"

namespace tessera::soft::ptx {

enum class Access : bool { kRead, kWrite };

// The slow paths: find the range of a global address; take a generic address apart. nullptr after a fault.
std::byte* FindGlobal(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes);
std::byte* FindGeneric(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes,
                       Access access);
std::byte* OutOfBounds(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes);
std::byte* Misaligned(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes);

inline bool Fits(std::uint64_t offset, unsigned bytes, std::uint64_t size) {
  return offset < size && size - offset >= bytes;
}

// The host's place of `bytes` (a power of two) at `address` as one lane sees it, or nullptr after a fault.
template <Space space>
inline std::byte* At(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes,
                     Access access) {
  if (address & (bytes - 1)) [[unlikely]]
    return Misaligned(warp, in, lane, address, bytes);
  if constexpr (space == Space::kGlobal) {
    const Range& range = warp.block->grid->ranges[in.range];
    if (address >= range.begin && Fits(address - range.begin, bytes, range.end - range.begin)) [[likely]] {
      return reinterpret_cast<std::byte*>(address);
    }
    return FindGlobal(warp, in, lane, address, bytes);
  } else if constexpr (space == Space::kGeneric) {
    if ((address & kWindowMask) == 0) return At<Space::kGlobal>(warp, in, lane, address, bytes, access);
    return FindGeneric(warp, in, lane, address, bytes, access);
  } else if constexpr (space == Space::kShared) {
    auto& shared = warp.block->shared;
    if (!Fits(address, bytes, shared.size())) [[unlikely]]
      return OutOfBounds(warp, in, lane, address, bytes);
    return shared.data() + address;
  } else if constexpr (space == Space::kLocal) {
    if (!Fits(address, bytes, warp.local_bytes)) [[unlikely]]
      return OutOfBounds(warp, in, lane, address, bytes);
    return warp.local.get() + std::size_t{lane} * warp.local_bytes + address;
  } else if constexpr (space == Space::kFrame) {
    return At<Space::kLocal>(warp, in, lane, warp.local_base + address, bytes, access);
  } else {
    static_assert(space == Space::kParam);
    auto& parameters = warp.block->grid->parameters;
    if (!Fits(address, bytes, parameters.size())) [[unlikely]]
      return OutOfBounds(warp, in, lane, address, bytes);
    return parameters.data() + address;
  }
}

// Reads a string of the kernel's up to its zero, or `limit` bytes of it. False after a fault.
bool ReadString(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, std::size_t limit,
                std::string& text);

}  // namespace tessera::soft::ptx
