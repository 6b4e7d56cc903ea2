#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "server/handover/slot_handover.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Has pools let go of slots of programs that are on other GPUs. A daemon that is killed while it hands slots over
// leaves them in both pools. When a program has named to the mover of its GPU all that it has, the other pools need
// them no more. On the loop's thread.
class StraySlots {
 public:
  struct Pool {
    MoverLink* link = nullptr;
    // None before a mover was started.
    std::function<std::optional<SlotHandover::Side>()> side;
    // Whether the program uses the GPU, or an earlier daemon's program of this pid may.
    std::function<bool(pid_t)> uses;
  };
  // `travels`: whether a migration takes the program along, which has slots of it in two pools. The loop and the links
  // outlive the object.
  StraySlots(EventLoop& loop, std::vector<Pool> pools, std::function<bool(pid_t)> travels);
  ~StraySlots();
  StraySlots(const StraySlots&) = delete;

 private:
  void Look();
  void LetGoOf(pid_t owner) const;

  const std::vector<Pool> pools_;
  const std::function<bool(pid_t)> travels_;
  std::vector<std::uint64_t> ears_;  // of the pools, in order
  std::set<pid_t> claimed_;          // those to look for, once they do not travel
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
