// Device memory that several processes may hold: that of cuMemCreate which can be exported.
//
// It is used up once, however many hold it, and for as long as anybody does: one of its holds is charged. When that one
// ends, with its process or before, another one is charged in its place, at no moment neither: so who is killed half
// way leaves nothing behind that the end of its slot does not put right.
#pragma once

#include <cstdint>

namespace tessera::soft {

struct SharedLayout;
struct SharedHold;

inline constexpr std::int32_t kNoHold = -1;

// What follows is called with the layout's mutex held.

bool IsHeld(const SharedLayout& layout, std::uint64_t memory);
// Charged if nobody else holds the memory, `hold.charged` does not matter. kNoHold if there are too many.
std::int32_t AddHold(SharedLayout& layout, SharedHold hold);
void DropHold(SharedLayout& layout, std::int32_t index);
void DropHoldsOf(SharedLayout& layout, std::uint32_t slot);

// What is charged on a device: to everybody, to one slot.
std::uint64_t HeldBytes(const SharedLayout& layout, int device);
std::uint64_t HeldBytesOf(const SharedLayout& layout, std::uint32_t slot, int device);

}  // namespace tessera::soft
