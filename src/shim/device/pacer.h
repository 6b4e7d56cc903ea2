#pragma once

#include "shim/gate/gate_keeper.h"
#include "shim/memory/room_account.h"
#include "shim/session/followed_page.h"

namespace tessera::shim {

// The thread that looks again and again whether the work on one GPU has ended, whether the daemon is there, which
// memory is hot or belongs to graphs, and what was freed in the order of streams that have come there. The classes that
// it calls decide what follows. Never destroyed once it was started.
class Pacer {
 public:
  Pacer(FollowedPage& page, GateKeeper& gates, RoomAccount& room, cuda::CUdevice device)
      : page_(page), gates_(gates), room_(room), device_(device) {}
  Pacer(const Pacer&) = delete;

  // Starts the thread, or writes a line on stderr if that fails. The thread ends after GateKeeper::Stop.
  void Start();

 private:
  static void* Main(void* self);
  void Run();
  void FreeQuiet(Nanos now);

  FollowedPage& page_;
  GateKeeper& gates_;
  RoomAccount& room_;
  const cuda::CUdevice device_;
  Nanos next_quiet_ = 0;  // when it looks next for what was freed
};

}  // namespace tessera::shim
