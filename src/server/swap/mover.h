#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/loop/event_loop.h"
#include "server/swap/holder/swap_holder_link.h"
#include "server/swap/swap_slots.h"
#include "wire/mover.h"

namespace tessera::server {

// The mover of one GPU as the daemon sees it: a process (src/mover) to send messages to. wire/mover.h tells what they
// mean.
class Mover {
 public:
  virtual ~Mover() = default;
  // In this order, and never waits: what it has no place for yet is kept. False: it is gone.
  virtual bool Send(const wire::MoverMessage& message, int fd = -1) = 0;
  virtual pid_t Pid() const = 0;
  // After it was said to be gone: whether its process has ended. It may still be in the driver, or writing to the pool.
  virtual bool Ended() = 0;
};

// Starts a mover. `on_message` is called on the loop's thread with what it says, and with nullptr when it is gone; it
// must not destroy the mover then and there. The mover says that it is ready when it has the slots of those before it.
struct MoverSetup {
  std::string gpu_uuid;
  bool soft = false;
  std::string floor;                 // of free RAM, bytes; empty: its own default
  const SwapSlots* slots = nullptr;  // of its pool,
  SwapHolderLink* holder = nullptr;  // and who holds them for the next daemon; both outlive it
  int file = -1, table = -1;         // of the swap file, if there is one (server/swap/swap_file.h)
  bool another = false;              // one before it died: a fault that was asked for (base/fault.h) has been had
};
Result<std::unique_ptr<Mover>> StartMover(EventLoop& loop, const MoverSetup& setup,
                                          std::function<void(const wire::MoverMessage*)> on_message);

}  // namespace tessera::server
