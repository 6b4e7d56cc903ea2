#pragma once

#include <sys/types.h>

#include <functional>

#include "base/unique_fd.h"
#include "mover/pool/pool_lending.h"
#include "mover/pool/pool_transit.h"
#include "wire/mover.h"

namespace tessera::mover {

// Slots that go from one GPU's pool to another's, with what a parked program has there: lends them, and takes those
// that another mover lent. For a while both pools have the same memory, so that a mover that is killed loses nothing;
// neither ever gives it to another program. For the loop's thread.
class LentSlots {
 public:
  using Tell = std::function<void(const wire::MoverMessage&)>;

  // `gpu`, `pool` and its `transit` outlive this object. `tell`: the daemon.
  LentSlots(Gpu& gpu, Pool& pool, PoolTransit& transit, Tell tell)
      : gpu_(gpu), lending_(pool), transit_(transit), tell_(std::move(tell)) {}

  // kLend, of the program with this pid.
  void OnLend(pid_t owner);
  // kSlotFor.
  void OnSlotFor(const wire::MoverMessage& message, UniqueFd fd);

 private:
  Result<void> Take(const KeyTable::Entry& entry, UniqueFd fd);

  Gpu& gpu_;
  PoolLending lending_;
  PoolTransit& transit_;
  const Tell tell_;
  pid_t tried_ = 0;  // one of its slots was mapped, the others are when they are needed
};

}  // namespace tessera::mover
