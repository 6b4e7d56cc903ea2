// The choice of the next holder and the length of its token.
#pragma once

#include "base/clock.h"
#include "sched/shares/shares.h"
#include "sched/tokens/account.h"

namespace tessera::sched {

// The vGPUs that want the token beside its holder.
struct Competition {
  double request_pct = 0;      // sums over those that compete
  double weight = 0;           // 0: there are none
  Nanos eligible_at = kNever;  // when the first vGPU that its limit holds back may run
};

// True if `a` goes before `b`, both eligible and settled. A vGPU whose request is owed goes first, and of those the one
// of whose request the window saw the smallest part; then the order is by virtual time. A tie goes to the vGPU that has
// waited longer, and against the holder.
bool Precedes(const Account& a, const Account& b);

// How long the holder may run before the scheduler looks again, and what it pays from. kNever: no end in sight.
struct Term {
  Account::Pays pays;
  Nanos length;
};
Term TermFor(const Config& config, const Account& holder, const Competition& others, Nanos now);

// The vGPU's part of the surplus of one window, within bounds that keep switches rare and waits short.
Nanos SurplusSlice(const Config& config, const Shares& shares, const Competition& others);

// True if `next` need not wait until the holder's slice of surplus is over: its request is owed, or it is behind in
// virtual time by more than the slices of others explain. Programs that come and go fall behind like that.
bool Preempts(const Account& next, const Account& holder, Nanos slice);

// How long the holder keeps the token even then; also the shortest surplus slice. Bounds what wake-ups can cost: two
// switches of 0.3 ms each in 4 ms are 15 %.
inline Nanos ShortSlice(const Config& config) { return 2 * config.min_slice; }

}  // namespace tessera::sched
