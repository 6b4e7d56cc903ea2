#include "soft/ptx/run/memory.h"

#include <cstdio>

#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

std::string Describe(std::uint64_t address, unsigned bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%u bytes at 0x%llx", bytes, static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

std::byte* Misaligned(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes) {
  warp.Raise(in, lane, Fault::kMisalignedAddress, "misaligned access to " + Describe(address, bytes));
  return nullptr;
}

std::byte* OutOfBounds(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes) {
  warp.Raise(in, lane, Fault::kIllegalAddress, "access outside of allocated memory, " + Describe(address, bytes));
  return nullptr;
}

std::byte* FindGlobal(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes) {
  Grid& grid = *warp.block->grid;
  const Range range = grid.Find(address);
  if (address < range.begin || !Fits(address - range.begin, bytes, range.end - range.begin)) {
    return OutOfBounds(warp, in, lane, address, bytes);
  }
  grid.ranges[in.range] = range;
  return reinterpret_cast<std::byte*>(address);
}

std::byte* FindGeneric(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, unsigned bytes,
                       Access access) {
  const std::uint64_t offset = address & ~kWindowMask;
  switch (address & kWindowMask) {
    case kSharedWindow:
      return At<Space::kShared>(warp, in, lane, offset, bytes, access);
    case kLocalWindow:
      return At<Space::kLocal>(warp, in, lane, offset, bytes, access);
    case kParamWindow:
      if (access == Access::kRead) return At<Space::kParam>(warp, in, lane, offset, bytes, access);
      warp.Raise(in, lane, Fault::kInvalidAddressSpace, "the parameters cannot be written");
      return nullptr;
    default:
      break;
  }
  return OutOfBounds(warp, in, lane, address, bytes);
}

bool ReadString(Warp& warp, const Instruction& in, unsigned lane, std::uint64_t address, std::size_t limit,
                std::string& text) {
  while (text.size() < limit) {
    const std::byte* place = At<Space::kGeneric>(warp, in, lane, address++, 1, Access::kRead);
    if (place == nullptr) return false;
    if (*place == std::byte{0}) break;
    text.push_back(static_cast<char>(*place));
  }
  return true;
}

}  // namespace tessera::soft::ptx
