#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>

#include "server/handover/slot_handover.h"

namespace tessera::server {

// Opens the direct way of a program's memory from one GPU to another: the mover of the second one makes slots of its
// GPU's memory (kMakeTransit), and the first one's mover maps them (kTransitFor), which it will put the program's
// memory into. The program works meanwhile. What does not fit there, or all of it if the GPUs cannot reach each other,
// goes through host memory. On the loop's thread.
class DirectWay {
 public:
  // `bytes`: of the program's memory that goes. Both sides outlive the object.
  DirectWay(const SlotHandover::Side& from, const SlotHandover::Side& to, pid_t owner, std::uint64_t bytes);
  // Both movers give up what was not used.
  ~DirectWay();
  DirectWay(const DirectWay&) = delete;

  // It is as open as it will be.
  bool Settled() const { return settled_; }
  // Bytes that the first mover has mapped. Less than was asked for if something failed, which the log says.
  std::uint64_t Bytes() const;

 private:
  void AskForMore();
  void OnFrom(const wire::MoverMessage* message);
  void OnTo(const wire::MoverMessage* message);
  void OnMade(std::uint64_t number);
  void Settle(int error, const char* of);
  wire::MoverMessage Of(wire::MoverType type, std::uint64_t bytes = 0) const {
    return {.type = type, .program = static_cast<std::uint64_t>(owner_), .bytes = bytes};
  }

  const SlotHandover::Side from_, to_;
  const pid_t owner_;
  std::uint64_t left_ = 0;              // slots that were not asked for yet
  std::uint64_t mapped_ = 0;            // slots
  std::set<std::uint64_t> on_the_way_;  // numbers of slots that the first mover is asked to map
  bool making_ = false;
  bool settled_ = false;
  std::uint64_t ear_from_ = 0, ear_to_ = 0;
};

}  // namespace tessera::server
