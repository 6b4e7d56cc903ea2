#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace tessera::server {

class SwapSlots;

// GPU memory that programs have let go of and that stayed where it was, as slots of swap pools, until it is copied to
// the programs' next memory: on which GPU it lies, whose it is, and which pools have it. While a pool keeps a
// descriptor of it, its GPU has so much less for others. What an earlier daemon's programs left is not known here; the
// device counts it as nobody's. On one thread.
class LeftMemory {
 public:
  // The pool is about to keep a new slot: memory of this GPU, which this program leaves.
  void Note(std::uint64_t number, std::uint32_t gpu, pid_t owner) { slots_[number] = {.gpu = gpu, .owner = owner}; }
  // A pool keeps a slot of this number, or no longer. Other slots may be named as well.
  void Kept(std::uint64_t number, const SwapSlots& pool);
  void Forgotten(std::uint64_t number, const SwapSlots& pool);

  // Whether some of it is this program's, and lies on this GPU, or on any.
  bool Any(std::optional<std::uint32_t> gpu, pid_t owner) const;
  // Bytes of a GPU, by program.
  std::map<pid_t, std::uint64_t> BytesOn(std::uint32_t gpu) const;

 private:
  struct Slot {
    std::uint32_t gpu = 0;
    pid_t owner = 0;
    std::set<const SwapSlots*> pools = {};
  };
  std::map<std::uint64_t, Slot> slots_;  // by number
};

}  // namespace tessera::server
