#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/unique_fd.h"
#include "mover/pool/pool_lending.h"
#include "wire/mover.h"

namespace tessera::mover {

// Slots that go from one GPU's pool to another's, with what a parked program has there: lends them, and takes those
// that another mover lent. For a while both pools have the same memory, so that a mover that is killed loses nothing;
// neither ever gives it to another program. Maps ahead slots that may come soon. For the loop's thread.
class LentSlots {
 public:
  using Tell = std::function<void(const wire::MoverMessage&)>;

  // `gpu` and `pool` outlive this object. `tell`: the daemon.
  LentSlots(Gpu& gpu, Pool& pool, Tell tell) : gpu_(gpu), lending_(pool), tell_(std::move(tell)) {}

  // kLend, of the program with this pid: in the next GoOn in which it is still.
  void OnLend(pid_t owner) { lends_.push_back(owner); }
  // kSlotFor.
  void OnSlotFor(const wire::MoverMessage& message, UniqueFd fd);
  // kReach and kReachOver.
  void OnReach(const wire::MoverMessage& message, UniqueFd fd);
  void OnReachOver(pid_t owner);

  // Slots are to be mapped ahead, one in each GoOn. `moves`: whether something of the program is on its way to another
  // slot.
  bool Maps() const { return unmapped_ > 0; }
  void GoOn(const std::function<bool(pid_t)>& moves = [](pid_t) { return false; });

 private:
  // A slot that may come soon.
  struct Soon {
    pid_t owner = 0;
    HostMemory memory;
    bool tried = false;
  };
  void Lend(pid_t owner);
  Result<void> Take(const KeyTable::Entry& entry, UniqueFd fd);
  HostMemory MemoryFor(const KeyTable::Entry& entry, UniqueFd fd);

  Gpu& gpu_;
  PoolLending lending_;
  const Tell tell_;
  std::vector<pid_t> lends_;            // that the daemon waits for
  std::map<std::uint64_t, Soon> soon_;  // by number
  std::uint64_t unmapped_ = 0;          // of them, those that were not tried
  pid_t tried_ = 0;                     // one of its slots was mapped, the others are when they are needed
};

}  // namespace tessera::mover
