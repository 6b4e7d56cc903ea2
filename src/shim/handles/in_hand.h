#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "pager/heap/reservations.h"
#include "shim/process/condition.h"

namespace tessera::shim {

class PhysicalMemory;

// Memory, and addresses, that threads work on while they wait for room, with the mutex free: others that mean the same
// wait for them. A thread takes all that it works on at once, so no two wait for each other. HandleMemory's mutex
// guards it.
class InHand {
 public:
  struct Things {
    std::vector<PhysicalMemory*> memories;
    pager::Reservations::Range range;  // of no bytes: none

    bool Meet(const Things& other) const {
      const auto& [begin, bytes] = range;
      const bool ranges = begin < other.range.begin + other.range.bytes && other.range.begin < begin + bytes;
      return ranges || std::ranges::find_first_of(memories, other.memories) != memories.end();
    }
  };

  // Whether a thread has some of these.
  bool Has(const Things& things) const {
    return std::ranges::any_of(taken_, [&](const Things* each) { return each->Meet(things); });
  }
  // Returns when a thread has let go of something.
  void Wait(Mutex& mutex) TESSERA_REQUIRES(mutex) { changed_.Wait(mutex); }
  // Nobody has them. They stay where they are until LetGo.
  void Take(const Things& things) { taken_.push_back(&things); }
  void LetGo(const Things& things) {
    std::erase(taken_, &things);
    changed_.NotifyAll();
  }

 private:
  std::vector<const Things*> taken_;
  Condition changed_;
};

}  // namespace tessera::shim
