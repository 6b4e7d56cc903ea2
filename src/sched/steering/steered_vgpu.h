#pragma once

#include <map>

#include "base/clock.h"
#include "sched/shares/shares.h"
#include "sched/steering/grace.h"
#include "sched/tokens/account.h"

namespace tessera::sched {

// State of a vGPU under Steering: what events said of it, and what is ordered.
struct SteeredVgpu {
  VgpuId id;
  Account account;
  Grace grace;

  // Said by events.
  bool active = false;
  bool ungated = false;  // it has processes that no gate keeps from submitting
  Nanos active_since = 0;
  Nanos idle_since = kNever;   // kNever: no gap to learn from
  Nanos seen_active = kNever;  // it was active until then

  // Ordered.
  bool stopped = false;
  bool frozen = false;  // stopped with work on the GPU: to let it go takes a driver call
  Nanos stopped_at = 0;
  Nanos slice = 0;  // 0: none yet
  Nanos sliced_at = 0;
  Nanos wrong_since = kNever;  // the slice was seen to be wrong
  Nanos grace_ordered = 0;
  double part = 1;   // of the GPU's time while it runs
  double first = 0;  // how often it is due to go first of those that go together, less how often it did

  bool aside = false;     // it stands still so that another can be measured (Steering::SetAside)
  bool released = false;  // it stood aside until now

  // Beside higher classes (GivingWay).
  bool barred = false;          // it must not run there
  Nanos soft_slice = 0;         // the slice with which it may run in their gaps; 0: its usual one
  bool cut = false;             // they have work, and its slice is longer: it stands still until that is changed
  Nanos seated_since = kNever;  // its turn in the gaps began; kNever: it has none
  Nanos unseated_at = 0;        // its last one ended

  // The limit (LimitKeeper).
  Nanos ran_until = kNever / -2;  // its last run is billed until then
  bool exhausted = false;         // it has had what its limit permits
  bool admitted = false;          // it had until now, and the driver call that lets it go is paid
  Nanos back_at = kNever;         // exhausted: until then
  Nanos check_at = kNever;        // it runs: what its limit permits lasts until then at least

  const Shares& shares() const { return account.shares(); }
  bool limited() const { return shares().limit_pct < 100; }
  bool runs() const { return active && !stopped; }
  bool claims() const { return active && !exhausted && !aside; }
  bool SliceTooLong() const { return active && soft_slice > 0 && (slice > 0 ? slice : kDriverSlice) > soft_slice; }

  static constexpr Nanos kDriverSlice = 2048 * kMicrosecond;  // of channels that were given none
};

using SteeredVgpus = std::map<VgpuId, SteeredVgpu>;

}  // namespace tessera::sched
