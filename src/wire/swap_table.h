// Tables of a swap pool's slots, and of the places in a swap file: memory that a mover writes and the daemon keeps,
// with an entry for each slot or place. The daemon and the swap holder read them. A change here needs a new
// kHandoverVersion (wire/swap_holder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera::wire {

struct SwapEntry {
  std::uint64_t key = 0;     // of what lies there; 0: the place is free
  std::int32_t owner = 0;    // pid of the program that has something there
  std::uint32_t marks = 0;   // of a slot: kGiven and so on
  std::uint64_t domain = 0;  // of a slot
  std::uint64_t memory = 0;  // of a slot: the number of the memory that this entry is about, random; 0: of none

  // A program of `domain` was given the slot's memory.
  static constexpr std::uint32_t kGiven = 1;
  // The owner holds nothing of what lies there, and may come back for it at any time as long as it lives.
  static constexpr std::uint32_t kParked = 2;
  // The mover of another GPU has this memory, or had it. Only the owner ever gets it: it is never used again.
  static constexpr std::uint32_t kShared = 4;
  // It is memory of a GPU, where what its owner has there stayed when the owner let go of it. It is never used again.
  static constexpr std::uint32_t kTransit = 8;
  // From this bit on: of kTransit, 1 + the index of the GPU; 0: this pool's own.
  static constexpr std::uint32_t kGpuShift = 8;

  bool Has(std::uint32_t mark) const { return (marks & mark) != 0; }
  // It is memory of another GPU than the pool's.
  bool Elsewhere() const { return (marks >> kGpuShift) != 0; }
};

inline constexpr std::uint64_t kTableEntryBytes = 32;
static_assert(sizeof(SwapEntry) == kTableEntryBytes && std::has_unique_object_representations_v<SwapEntry>);
static_assert(offsetof(SwapEntry, owner) == 8 && offsetof(SwapEntry, marks) == 12 &&
              offsetof(SwapEntry, domain) == 16 && offsetof(SwapEntry, memory) == 24);

}  // namespace tessera::wire
