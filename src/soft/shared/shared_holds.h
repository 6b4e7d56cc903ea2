// Device memory that several processes may hold: that of cuMemCreate which can be exported.
//
// It is used up once, however many hold it, and for as long as anybody does: one of its holds is charged. When that one
// ends, with its process or before, another one is charged in its place, at no moment neither: so who is killed half
// way leaves nothing behind that the end of its slot does not put right.
#pragma once

#include <cstdint>

#include "soft/shared/shared_layout.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

bool IsHeld(const SharedLayout& layout, std::uint64_t memory) TESSERA_REQUIRES(layout.mutex);
// Charges the memory if it has no other hold; ignores `hold.charged`. kNoHold if there are too many.
std::int32_t AddHold(SharedLayout& layout, SharedHold hold) TESSERA_REQUIRES(layout.mutex);
void DropHold(SharedLayout& layout, std::int32_t index) TESSERA_REQUIRES(layout.mutex);
void DropHoldsOf(SharedLayout& layout, std::uint32_t slot) TESSERA_REQUIRES(layout.mutex);

// Bytes charged on a device: to all slots, to one slot.
std::uint64_t HeldBytes(const SharedLayout& layout, int device) TESSERA_REQUIRES(layout.mutex);
std::uint64_t HeldBytesOf(const SharedLayout& layout, std::uint32_t slot, int device) TESSERA_REQUIRES(layout.mutex);

}  // namespace tessera::soft
