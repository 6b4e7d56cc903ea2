#pragma once

#include "base/clock.h"
#include "sched/shares/allowance.h"
#include "sched/shares/shares.h"
#include "sched/tokens/window.h"

namespace tessera::sched {

// Time that a vGPU got so far.
struct Usage {
  Nanos busy = 0;         // billed execution time since it was added
  Nanos waited = 0;       // time in which it wanted to run and was kept from it
  double window_pct = 0;  // billed time in the window that ends now, % of the window
  Nanos debt = 0;         // time it ran beyond its limit or its request, and pays back by waiting
};

// The books of one vGPU: what its limit still permits, what its request is still owed, its place in the order by
// weight, and what it used in the window. Everything is as of the last Settle; calls take times that never go back.
class Account {
 public:
  // A run is paid from what the request is owed, into debt if the run overruns; or from the surplus, the time that is
  // guaranteed to no vGPU, in virtual time (time / weight), so that it is shared by weight. A vGPU that runs alone pays
  // from the request down to zero, so that it is owed nothing when others come, and the rest from the surplus.
  enum class Pays { kRequest, kSurplus, kRequestFirst };

  Account(const Shares& shares, const Config& config, Nanos now);

  const Shares& shares() const { return shares_; }
  void SetShares(const Shares& shares, Nanos now);

  // Brings the books to `now`. Waiting and running vGPUs are settled before they are compared. `virtual_now`: the
  // present of the order by weight, for a vGPU that waits: one that its limit held back keeps no more credit than half
  // a window.
  void Settle(Nanos now, double virtual_now = 0);

  // Begins to wait. Time spent idle gives no credit in the order by weight, of which `virtual_now` is the present.
  void BeginWait(Nanos now, double virtual_now);
  // Ends the wait, if there is one, and starts to run or runs on.
  void Run(Nanos now, Pays pays);
  // From now on pays only this part of the time in which it runs, (0, 1], as others run with it.
  void SetPart(Nanos now, double part);
  void Stop(Nanos now);

  bool waiting() const { return waiting_; }
  bool running() const { return running_; }
  Nanos waiting_since() const { return waiting_ ? since_ : kNever; }
  Nanos settled() const { return settled_; }

  // May run now: its limit permits a run that is worth a switch.
  bool Eligible() const { return !limited() || limit_.ready(); }
  // When a waiting vGPU becomes eligible.
  Nanos EligibleAt() const;
  // How long a run from now on may last by the limit; kNever without one.
  Nanos Available() const;

  // The request is owed a run that is worth a switch.
  bool Owed() const { return shares_.request_pct > 0 && request_.ready(); }
  // The time that the request still pays for.
  const Allowance& request() const { return request_; }
  // Part of the request that the window has not seen, [0, 1]; needs a request.
  double UnmetFraction() const;

  double virtual_time() const { return virtual_time_; }
  // It takes part in the order by weight: it waits, or stopped less than a window ago. A program that waits for its
  // results is idle between the drain and its next launch, and busy in truth. A vGPU at its limit takes no part: its
  // virtual time stands still.
  bool Competes(Nanos now) const { return Eligible() && (waiting_ || (!running_ && !Rested(now))); }

  // The usage as of `now`. Does not settle the account: that would bill a vGPU which has been idle for a while and has
  // not said so. `present`: the scheduler's own time; waits are counted until then at least.
  Usage UsageAt(Nanos now, Nanos present) const;

 private:
  Nanos Waited(Nanos now) const { return waited_ + (waiting_ ? now - since_ : 0); }
  Nanos Debt() const;
  bool limited() const { return shares_.limit_pct < 100; }
  bool Rested(Nanos now) const { return now - since_ >= config_.window; }
  double Ceiling() const;
  // The most that an idle vGPU keeps. Its first run then lasts for one window's quota, as it earns while it runs.
  double IdleLimitCap() const { return limit_.quota() * (1 - limit_.rate()); }
  double Cap(const Allowance& allowance, double idle_cap, Nanos now) const;
  double FromRequest(double elapsed, double cost) const;
  void Refresh();

  const Config config_;
  Shares shares_;
  Allowance limit_;
  Allowance request_;
  UsageWindow window_;
  double virtual_time_ = 0;

  bool waiting_ = false;
  bool running_ = false;
  Pays pays_ = Pays::kRequestFirst;
  double part_ = 1;

  Nanos settled_;
  Nanos since_;  // idle, waiting, or running under its present terms
  Nanos waited_ = 0;
  double busy_ = 0;
};

}  // namespace tessera::sched
