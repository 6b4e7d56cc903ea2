#pragma once

#include <cstdint>

#include "pager/chunks/heap_figures.h"

namespace tessera::pager {

// The right of a heap to have GPU memory, in bytes. The daemon lends it; every chunk that the heap makes takes some of
// it. The shim implements it with the shared page. Any thread.
class Room {
 public:
  virtual ~Room() = default;
  // Takes `bytes`; waits as long as somebody may still give them. False: they are not to be had. Called without the
  // heap's mutex.
  virtual bool Take(std::uint64_t bytes) = 0;
  virtual void Give(std::uint64_t bytes) = 0;
  // The heap's figures have changed. Called with the heap's mutex held, before any other thread can see the change.
  virtual void Holds(const HeapFigures& figures) = 0;
  // True if the program is being let run (MoveGuard), so that no more of its memory may be moved. Ask it after Holds
  // has told what is unsafe: then either this side or the other one sees what its peer did.
  virtual bool Released() const = 0;
};

}  // namespace tessera::pager
