#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <set>

#include "server/handover/slot_handover.h"

namespace tessera::server {

// Tells the mover of the GPU that a program goes to which slots may come with it, before they do, so that it maps them
// meanwhile: free slots of host memory that the program's memory will go to, or those in which it stays where it was
// (wire::MoverType::kSlotLeft). What fails costs time later, and nothing else. On the loop's thread.
class SlotsAhead {
 public:
  enum class What { kFree, kLeft };

  // `owner`: the program's pid. `most`: slots. Both sides outlive the object.
  SlotsAhead(const SlotHandover::Side& from, const SlotHandover::Side& to, pid_t owner, What what, std::uint64_t most);
  // That mover gives up what did not come.
  ~SlotsAhead();
  SlotsAhead(const SlotsAhead&) = delete;

 private:
  void OnFrom(const wire::MoverMessage* message);
  void OnTo(const wire::MoverMessage* message);
  void TellMore();

  const SlotHandover::Side from_, to_;
  const pid_t owner_;
  const std::uint32_t marks_;
  std::deque<std::uint64_t> next_;      // numbers of slots
  std::set<std::uint64_t> on_the_way_;  // those that the mover has not answered
  std::uint64_t ear_from_ = 0, ear_to_ = 0;
};

}  // namespace tessera::server
