#pragma once

#include "shim/gate/gate_keeper.h"
#include "shim/memory/room_account.h"
#include "shim/session/followed_page.h"

namespace tessera::shim {

// The thread of one GPU that looks when its work has ended, whether the daemon is there, and what memory is hot. All
// that is decided is decided by whom it asks. Never destroyed once it was started.
class Pacer {
 public:
  Pacer(FollowedPage& page, GateKeeper& gates, RoomAccount& room) : page_(page), gates_(gates), room_(room) {}
  Pacer(const Pacer&) = delete;

  // Starts the thread; a line on stderr if that fails. It ends when GateKeeper::Stop was called.
  void Start();

 private:
  static void* Main(void* self);
  void Run();

  FollowedPage& page_;
  GateKeeper& gates_;
  RoomAccount& room_;
};

}  // namespace tessera::shim
