// The token scheduler: decides which vGPU may execute on one GPU, and until when.
//
// A pure function of events: no clock, no thread, no I/O. The daemon feeds it real time, tests and planners feed it
// virtual time; the same events give the same decisions. One instance serves one GPU. Not thread-safe.
//
// Billing. A vGPU pays from its grant until it is idle or drained, so both the time up to its first launch and the
// drain after a revoke are its own. A holder that has not drained `drain_timeout` after its revoke becomes a straggler:
// the token moves on. The hardware then slices between them, so all that run pay equal parts of the time.
//
// Spaces. vGPUs of one space hold the token at the same time, as long as the sum of their SMs is at most 100 %; each
// pays for all of its time, as each has SMs of its own. One that does not fit beside the holders waits until terms end;
// one behind it in the order may use the SMs until then, if that is long enough for a slice. A vGPU in no space, and a
// space against the others, has the GPU alone.
//
// docs/scheduler.md tells how the next holder is chosen.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sched/shares/shares.h"
#include "sched/tokens/account.h"
#include "sched/tokens/policy.h"

namespace tessera::sched {

// An action that the GPU server must take now.
struct Decision {
  enum class Kind {
    kGrant,   // open the gates of the vGPU's processes until `expires` (kNever: until revoked). For a vGPU that holds
              // the token already it changes the terms: later, earlier, bounded or not
    kRevoke,  // close them; answer with Released once what was submitted has drained
  };
  Kind kind;
  VgpuId vgpu;
  Nanos expires = kNever;  // for information: the end comes as a kRevoke
  bool bounded = true;     // false: no other vGPU wants the GPU and no limit applies, so queued work needs no bound
};

class TokenScheduler {
 public:
  explicit TokenScheduler(Config config = {});

  // Admission: EINVAL or ERANGE for shares out of range, ENOSPC when the sum of requests would pass 100 %, EEXIST /
  // ENOENT for a wrong id. Nothing changes on failure.
  Result<void> Add(VgpuId id, Shares shares);
  // Takes effect at once, for the holder too.
  Result<void> Update(VgpuId id, Shares shares, Nanos now);
  // The token of a holder is free at once: its processes are dead or their channels gone.
  void Remove(VgpuId id, Nanos now);

  // Events. `now` never goes backwards. Events that make no sense in the present state are ignored (clients may lie).

  // Work waits at a closed gate. Must be said again after a revoke or an Idle when work waits then; says nothing while
  // the vGPU holds the token.
  void Wants(VgpuId id, Nanos now);
  // The holder ran out of work at `idle_since` and gives the token back. Also ends a revoked holder's drain and a
  // straggler. A vGPU that only waits cannot take its wish back: grant, then Idle, costs nothing and loses no wake-up.
  void Idle(VgpuId id, Nanos now, Nanos idle_since);
  // A revoked holder's work ended at `drained_at`. Both timestamps count as within [last change of its terms, now].
  void Released(VgpuId id, Nanos now, Nanos drained_at);
  void Advance(Nanos now);  // time passed

  // When Advance must be called at the latest; kNever if nothing is pending.
  Nanos NextDeadline() const { return deadline_; }

  // Decisions since the last call, in order.
  std::vector<Decision> TakeDecisions();

  // It has had what its limit permits for now. False for an unknown id.
  bool AtLimit(VgpuId id) const;

  // All zero for an unknown id.
  Usage UsageOf(VgpuId id, Nanos now) const;

 private:
  // The token as one vGPU holds it. `since` is when it got it, `term_since` when its terms changed last; `expires` is
  // when the term ends or, once revoked, when the drain counts as too long.
  struct Hold {
    bool revoked = false;
    Account::Pays pays = Account::Pays::kSurplus;
    Nanos since = 0;
    Nanos term_since = 0;
    Nanos expires = kNever;
  };

  using Accounts = std::map<VgpuId, Account>;

  Account* Find(VgpuId id);
  bool Holds(VgpuId id) const;
  bool Draining(VgpuId id) const;

  void Schedule();
  void StartNext();
  void StartBesides();
  void EndTerm(VgpuId id);
  void CutTerm(VgpuId id);
  void StartTerm(VgpuId id, Account& account, Nanos until = kNever);
  void Grant(VgpuId id, Nanos expires);
  void Revoke(VgpuId id);
  void Stop(VgpuId id, Account& account, Nanos end);

  void SettleWaiting();
  void AdvanceVirtualTime();
  void SplitAmongRunning();
  bool MayStart(Accounts::const_iterator it) const;
  std::vector<Accounts::iterator> InLine();
  Accounts::iterator Next();
  bool Fits(const Account& account) const;
  Nanos RoomAt(const Account& account) const;
  bool Crowded(std::uint32_t space) const;
  Competition OthersThan(const Account* account) const;
  void UpdateDeadline();

  Config config_;
  Accounts accounts_;
  std::map<VgpuId, Hold> holds_;
  Nanos now_ = 0;
  Nanos deadline_ = kNever;
  double virtual_now_ = 0;  // least virtual time of those that compete for the surplus; never goes back
  std::vector<Decision> decisions_;
};

}  // namespace tessera::sched
