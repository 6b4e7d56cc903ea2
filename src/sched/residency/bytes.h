// Sums of bytes that never wrap, and memory that moves in chunks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::sched {

// `from` without `bytes`; 0 where that would be less than nothing.
inline std::uint64_t Less(std::uint64_t from, std::uint64_t bytes) { return from > bytes ? from - bytes : 0; }
// `bytes` rounded to whole chunks.
inline std::uint64_t UpTo(std::uint64_t chunk, std::uint64_t bytes) { return (bytes + chunk - 1) / chunk * chunk; }
inline std::uint64_t DownTo(std::uint64_t chunk, std::uint64_t bytes) { return bytes / chunk * chunk; }

// Host memory for chunks that are out. A chunk takes a whole slot of it, however little lies in the chunk: the rest of
// the slot is *blank*.
inline constexpr std::uint64_t kSlotBytes = 64ull << 20;
// A chunk that takes a slot has so much in use at least.
inline constexpr std::uint64_t kLeastInSlot = 2ull << 20;

// What slots for `bytes` of memory have to come to, whichever chunks go out: at most `blank` bytes of slots would be
// blank if all memory were out.
inline std::uint64_t SlotsFor(std::uint64_t bytes, std::uint64_t blank, std::uint64_t slot = kSlotBytes,
                              std::uint64_t least = kLeastInSlot) {
  const std::uint64_t parts = slot / least;
  return UpTo(slot, parts > 0 && bytes < blank ? std::min(parts * bytes, bytes + blank) : bytes + blank);
}

// The most memory for which `slots` bytes suffice so: whatever else a program maps, it finds a place for so much.
inline std::uint64_t HeldBySlots(std::uint64_t slots, std::uint64_t blank) {
  return std::max(Less(slots, blank), slots / (kSlotBytes / kLeastInSlot));
}

// Of `blank` bytes those that slots can have of a vGPU of which at most `swap` bytes may be out. Each slot holds
// something, so what may never go out leaves nothing blank.
inline std::uint64_t BlankWithin(std::uint64_t swap, std::uint64_t blank) {
  constexpr std::uint64_t kMostInSlot = kSlotBytes - kLeastInSlot;
  const std::uint64_t slots = swap / kLeastInSlot + (swap % kLeastInSlot > 0 ? 1 : 0);
  return slots <= blank / kMostInSlot ? slots * kMostInSlot : blank;
}

}  // namespace tessera::sched
