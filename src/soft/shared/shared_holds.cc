#include "soft/shared/shared_holds.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

namespace tessera::soft {
namespace {

std::span<SharedHold> UsedHolds(SharedLayout& layout) TESSERA_REQUIRES(layout.mutex) {
  return {layout.holds, layout.hold_count};
}
std::span<const SharedHold> UsedHolds(const SharedLayout& layout) TESSERA_REQUIRES(layout.mutex) {
  return {layout.holds, layout.hold_count};
}

// Two holds on a memory are charged only if somebody was killed while the charge passed from one to the other.
void PassCharge(SharedLayout& layout, const SharedHold& from) TESSERA_REQUIRES(layout.mutex) {
  SharedHold* next = nullptr;
  for (SharedHold& hold : UsedHolds(layout)) {
    if (&hold == &from || hold.memory != from.memory) continue;
    if (hold.charged != 0) return;
    if (next == nullptr) next = &hold;
  }
  if (next != nullptr) next->charged = 1;
}

}  // namespace

bool IsHeld(const SharedLayout& layout, std::uint64_t memory) {
  const auto used = UsedHolds(layout);
  return std::ranges::find(used, memory, &SharedHold::memory) != used.end();
}

std::int32_t AddHold(SharedLayout& layout, SharedHold hold) {
  hold.charged = IsHeld(layout, hold.memory) ? 0 : 1;
  const auto used = UsedHolds(layout);
  const auto free = std::ranges::find(used, 0, &SharedHold::memory);
  if (free == used.end() && used.size() == kMaxHolds) return kNoHold;
  SharedHold& place = free != used.end() ? *free : layout.holds[used.size()];
  const std::uint64_t memory = std::exchange(hold.memory, 0);
  place = hold;
  std::atomic_ref(place.memory).store(memory, std::memory_order_release);  // last: now it counts
  if (free == used.end()) ++layout.hold_count;
  return static_cast<std::int32_t>(&place - layout.holds);
}

void DropHold(SharedLayout& layout, std::int32_t index) {
  SharedHold& hold = layout.holds[index];
  if (hold.charged != 0) PassCharge(layout, hold);
  std::atomic_ref(hold.memory).store(0, std::memory_order_release);
}

void DropHoldsOf(SharedLayout& layout, std::uint32_t slot) {
  for (std::uint32_t i = 0; i < layout.hold_count; ++i) {
    const SharedHold& hold = layout.holds[i];
    if (hold.memory != 0 && hold.slot == slot) DropHold(layout, static_cast<std::int32_t>(i));
  }
}

std::uint64_t HeldBytes(const SharedLayout& layout, int device) {
  std::uint64_t bytes = 0;
  for (const SharedHold& hold : UsedHolds(layout)) {
    if (hold.memory != 0 && hold.charged != 0 && hold.device == device) bytes += hold.bytes;
  }
  return bytes;
}

std::uint64_t HeldBytesOf(const SharedLayout& layout, std::uint32_t slot, int device) {
  std::uint64_t bytes = 0;
  for (const SharedHold& hold : UsedHolds(layout)) {
    const bool counts = hold.memory != 0 && hold.charged != 0 && hold.device == device;
    if (counts && hold.slot == slot) bytes += hold.bytes;
  }
  return bytes;
}

}  // namespace tessera::soft
