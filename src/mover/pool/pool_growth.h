#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "mover/pool/pool.h"

namespace tessera::mover {

// How many chunks of host memory the programs of a domain could use now.
using Demand = std::map<Domain, std::uint64_t>;

// Decides how many slots the pool has: which slot is made or freed next. Makes and frees no memory itself (Grower
// does). For the loop's thread.
class PoolGrowth {
 public:
  struct Job {
    enum class Kind { kNothing, kMake, kFree };
    Kind kind = Kind::kNothing;
    Pool::Removed removed;  // of kFree
  };

  // The pool outlives this object, and has at most `slots` slots.
  PoolGrowth(Pool& pool, std::uint64_t slots) : pool_(pool), slots_(slots) {}

  // How many slots the pool should have, and how many at most. Until this is known nothing is made or freed.
  void Aim(std::uint64_t wanted, std::uint64_t most);
  // How many it should have when there is nothing else to do. No more are wanted then: what is free beyond is freed.
  void AimAhead(std::uint64_t prepared);
  // Slots that the pool lacks for `demand`.
  std::uint64_t Missing(const Demand& demand) const;
  // The next step to make the pool as it should be, and to make room for `demand`. The caller does it, and says when a
  // kMake has ended (Ended, after the slot was admitted to the pool); it may ask for other steps meanwhile.
  // `loads`: memory comes in just now; of what lies on other GPUs nothing is freed then.
  Job Next(const Demand& demand, bool loads = false);
  // The next step to prepare slots ahead, where nothing else is to be done. Slots that only programs of other domains
  // than these could take are made anew.
  Job Prepare(const std::set<Domain>& present);
  // From now on Next has only what `demand` waits for, and Prepare nothing; or no longer.
  void Rest(bool rests) { rests_ = rests; }
  void Ended() { --making_; }
  bool Makes() const { return making_ > 0; }
  // No memory can be made until Resume, or until some is freed.
  void Stop() { stopped_ = true; }
  void Resume() { stopped_ = false; }

 private:
  Job Free(Pool::Removed removed);
  Job Make();

  Pool& pool_;
  const std::uint64_t slots_;
  bool aimed_ = false;
  std::uint64_t making_ = 0;  // slots that are being made
  std::uint64_t prepared_ = 0;
  std::uint64_t wanted_ = 0;
  std::uint64_t most_ = 0;
  bool stopped_ = false;
  bool rests_ = false;
};

}  // namespace tessera::mover
