#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>

#include "base/unique_fd.h"
#include "mover/pool/pool_transit.h"
#include "wire/mover.h"

namespace tessera::mover {

// Slots of a GPU's memory on the direct way from GPU to GPU: the mover of the GPU that a program comes to makes them,
// and the mover of the GPU that it leaves puts the program's memory into them. Then they go back as all slots of a
// parked program do (LentSlots), and the first mover has them already. For the loop's thread.
class TransitSlots {
 public:
  // `fd`: goes along; -1: none does.
  using Tell = std::function<void(const wire::MoverMessage&, int fd)>;

  // `gpu`, `pool` and its `transit` outlive this object. `tell`: the daemon.
  TransitSlots(Gpu& gpu, Pool& pool, PoolTransit& transit, Tell tell)
      : gpu_(gpu), pool_(pool), transit_(transit), tell_(std::move(tell)) {}

  // kMakeTransit, kTransitFor and kTransitOver. False: it is another message.
  bool On(const wire::MoverMessage& message, UniqueFd& fd);
  // Slots are to be made, a few in each GoOn.
  bool Makes() const { return !orders_.empty(); }
  void GoOn();

 private:
  void Make(pid_t owner, std::uint64_t bytes);
  void End(pid_t owner);
  Result<void> MakeOne(pid_t owner);
  Result<void> Take(const wire::MoverMessage& message, UniqueFd fd);
  void TellEnd(pid_t owner, int error);

  Gpu& gpu_;
  Pool& pool_;
  PoolTransit& transit_;
  const Tell tell_;
  struct Order {
    pid_t owner = 0;         // for whom slots are made,
    std::uint64_t left = 0;  // and how many still
  };
  std::deque<Order> orders_;
};

}  // namespace tessera::mover
