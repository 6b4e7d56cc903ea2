// The choice of the next holder and the length of its token.
#pragma once

#include "base/clock.h"
#include "sched/shares/shares.h"
#include "sched/tokens/account.h"

namespace tessera::sched {

// Who else wants the token.
struct Competition {
  double request_pct = 0;      // sums over those that compete
  double weight = 0;           // 0: nobody does
  Nanos eligible_at = kNever;  // when the first of those may run that their limit holds back
};

// True if `a` goes before `b`, both eligible and settled: whose request is owed first, of those the one that the window
// saw least of, then by virtual time. A tie goes to who has waited longer, and
// against the holder.
bool Precedes(const Account& a, const Account& b);

// How long the holder may run, and what from, until the next look at who else wants the token. kNever: no end in sight.
struct Term {
  Account::Pays pays;
  Nanos length;
};
Term TermFor(const Config& config, const Account& holder, const Competition& others, Nanos now);

// The vGPU's part of what one window leaves over, within bounds that keep switches rare and waits short.
Nanos SurplusSlice(const Config& config, const Shares& shares, const Competition& others);

// True if `next` need not wait until the holder's slice of surplus is over: it is owed its request, or by virtual time
// it is behind by more than the slices of others explain, as who comes and goes is.
bool Preempts(const Account& next, const Account& holder, Nanos slice);

// How long the holder keeps the token even then; also the shortest surplus slice. Bounds what wake-ups can cost: two
// switches of 0.3 ms each in 4 ms are 15 %.
inline Nanos ShortSlice(const Config& config) { return 2 * config.min_slice; }

}  // namespace tessera::sched
