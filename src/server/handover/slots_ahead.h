#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <set>

#include "server/handover/slot_handover.h"

namespace tessera::server {

// Tells the mover of the GPU that a program goes to which slots may come with it, before they do, so that it maps them
// while the program still works: free slots of host memory that the program's memory will go to, or its own memory,
// which it leaves where it is. Has the program show that memory before (wire::MoverType::kShow). What fails costs time
// later, and nothing else. On the loop's thread.
class SlotsAhead {
 public:
  enum class What { kFree, kShown };

  // `owner`: the program's pid. `most`: slots. Both sides outlive the object.
  SlotsAhead(const SlotHandover::Side& from, const SlotHandover::Side& to, pid_t owner, What what, std::uint64_t most);
  // The movers give up what did not come.
  ~SlotsAhead();
  SlotsAhead(const SlotsAhead&) = delete;

  // All is mapped that can be.
  bool Settled() const { return !shows_ && next_.empty() && on_the_way_.empty(); }

 private:
  void OnFrom(const wire::MoverMessage* message);
  void OnTo(const wire::MoverMessage* message);
  void TellMore();
  wire::MoverMessage Of(wire::MoverType type, std::uint64_t bytes = 0) const {
    return {.type = type, .program = static_cast<std::uint64_t>(owner_), .bytes = bytes};
  }

  const SlotHandover::Side from_, to_;
  const pid_t owner_;
  const What what_;
  bool shows_ = false;                  // the program does
  std::deque<std::uint64_t> next_;      // numbers of slots
  std::set<std::uint64_t> on_the_way_;  // those that the mover has not answered
  std::uint64_t ear_from_ = 0, ear_to_ = 0;
};

}  // namespace tessera::server
