#include "sched/tokens/token_scheduler.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sched/shares/admission.h"

namespace tessera::sched {
namespace {

constexpr double kRounding = 1e-4;  // % of the SMs; more than admission rounds off those of a hundred vGPUs

}  // namespace

TokenScheduler::TokenScheduler(Config config) : config_(config) {
  config_.min_slice = std::min(config_.min_slice, config_.window / 8);
}

Result<void> TokenScheduler::Add(VgpuId id, Shares shares) {
  if (auto ok = AdmitNew(accounts_, id, shares); !ok) return ok;
  accounts_.emplace(id, Account(shares, config_, now_));
  return {};
}

Result<void> TokenScheduler::Update(VgpuId id, Shares shares, Nanos now) {
  if (auto ok = AdmitChange(accounts_, id, shares); !ok) return ok;
  now_ = std::max(now_, now);
  Account& account = *Find(id);
  const SpacePlace before = account.shares().space;
  const bool moves = before.number != shares.space.number || before.taken_pct() < shares.space.taken_pct();
  account.SetShares(shares, now_);
  if (Holds(id) && moves) {
    Revoke(id);  // it may not fit beside the other holders any more
  } else if (Holds(id)) {
    holds_.at(id).expires = now_;  // a new term under the new shares, or none
  }
  Schedule();
  return {};
}

void TokenScheduler::Remove(VgpuId id, Nanos now) {
  Account* account = Find(id);
  if (account == nullptr) return;
  now_ = std::max(now_, now);
  if (account->running()) Stop(id, *account, now_);
  accounts_.erase(id);
  Schedule();
}

void TokenScheduler::Wants(VgpuId id, Nanos now) {
  Account* account = Find(id);
  if (account == nullptr || account->waiting() || Holds(id)) return;
  now_ = std::max(now_, now);
  AdvanceVirtualTime();
  account->BeginWait(now_, virtual_now_);
  Schedule();
}

void TokenScheduler::Idle(VgpuId id, Nanos now, Nanos idle_since) {
  Account* account = Find(id);
  if (account == nullptr || !account->running()) return;
  now_ = std::max(now_, now);
  Stop(id, *account, idle_since);
  Schedule();
}

void TokenScheduler::Released(VgpuId id, Nanos now, Nanos drained_at) {
  Account* account = Find(id);
  if (account == nullptr || !account->running() || Holds(id)) return;
  now_ = std::max(now_, now);
  Stop(id, *account, drained_at);
  Schedule();
}

void TokenScheduler::Advance(Nanos now) {
  now_ = std::max(now_, now);
  Schedule();
}

std::vector<Decision> TokenScheduler::TakeDecisions() { return std::exchange(decisions_, {}); }

Usage TokenScheduler::UsageOf(VgpuId id, Nanos now) const {
  const auto found = accounts_.find(id);
  return found == accounts_.end() ? Usage{} : found->second.UsageAt(now, now_);
}

bool TokenScheduler::AtLimit(VgpuId id) const {
  const auto found = accounts_.find(id);
  return found != accounts_.end() && !found->second.Eligible();
}

Account* TokenScheduler::Find(VgpuId id) {
  const auto found = accounts_.find(id);
  return found == accounts_.end() ? nullptr : &found->second;
}

bool TokenScheduler::Holds(VgpuId id) const {
  const auto found = holds_.find(id);
  return found != holds_.end() && !found->second.revoked;
}

bool TokenScheduler::Draining(VgpuId id) const {
  const auto found = holds_.find(id);
  return found != holds_.end() && found->second.revoked;
}

// Does what is due now. A vGPU gets or keeps the token for a term. The term ends at its expiry, or earlier if another
// vGPU begins to compete.
void TokenScheduler::Schedule() {
  // A holder whose drain takes too long runs on as a straggler.
  std::erase_if(holds_, [&](const auto& entry) { return entry.second.revoked && now_ >= entry.second.expires; });
  SettleWaiting();
  StartNext();
  std::vector<VgpuId> holders;
  for (const auto& [id, _] : holds_) holders.push_back(id);
  for (const VgpuId id : holders) {
    if (!Holds(id)) continue;
    if (now_ >= holds_.at(id).expires) {
      EndTerm(id);
    } else {
      CutTerm(id);
    }
  }
  StartBesides();
  UpdateDeadline();
}

// Starts those that wait, in their order, until one does not fit.
void TokenScheduler::StartNext() {
  for (auto next = Next(); next != accounts_.end() && Fits(next->second); next = Next()) {
    StartTerm(next->first, next->second);
  }
}

// SMs that the first in line cannot use yet serve those behind it, until it can.
void TokenScheduler::StartBesides() {
  if (holds_.empty() || accounts_.at(holds_.begin()->first).shares().space.number == 0) return;
  Nanos until = kNever;
  for (const auto& waiting : InLine()) {
    if (!Fits(waiting->second)) {
      until = std::min(until, RoomAt(waiting->second));
    } else if (until - now_ >= config_.min_slice) {
      StartTerm(waiting->first, waiting->second, until);
    }
  }
}

void TokenScheduler::EndTerm(VgpuId id) {
  Account& holder = *Find(id);
  AdvanceVirtualTime();
  const auto next = Next();
  if (holder.Eligible() && (next == accounts_.end() || Precedes(holder, next->second))) {
    StartTerm(id, holder);
  } else {
    Revoke(id);
  }
}

// The length of a term follows from the vGPUs that competed when it began; if more do now, it may have to end earlier.
// A guaranteed term stays: it is short, and its holder is owed it.
void TokenScheduler::CutTerm(VgpuId id) {
  const auto next = Next();
  const Hold hold = holds_.at(id);
  if (hold.pays == Account::Pays::kRequest || next == accounts_.end()) return;
  Account& holder = *Find(id);
  holder.Settle(now_);
  const bool alone_till_now = hold.pays == Account::Pays::kRequestFirst;
  if (alone_till_now && holder.Owed() && holder.Eligible()) return StartTerm(id, holder);

  const Nanos slice = SurplusSlice(config_, holder.shares(), OthersThan(&holder));
  const bool preempts = Preempts(next->second, holder, slice);
  const Nanos end = preempts ? hold.since + ShortSlice(config_) : hold.term_since + slice;
  if (end <= now_) {
    EndTerm(id);
  } else if (end < hold.expires) {
    Grant(id, end);
  }
}

// Gives the token to `account`, or lets it keep it, for a term that fits the present competition and ends at `until`.
void TokenScheduler::StartTerm(VgpuId id, Account& account, Nanos until) {
  if (!Holds(id)) holds_[id] = {.since = now_};
  Hold& hold = holds_.at(id);
  account.Settle(now_);
  const Term term = TermFor(config_, account, OthersThan(&account), now_);
  account.Run(now_, term.pays);
  SplitAmongRunning();
  hold.pays = term.pays;
  hold.term_since = now_;
  Grant(id, std::min(until, term.length == kNever ? kNever : now_ + term.length));
}

void TokenScheduler::Grant(VgpuId id, Nanos expires) {
  holds_.at(id).expires = expires;
  decisions_.push_back({Decision::Kind::kGrant, id, expires, expires != kNever});
}

void TokenScheduler::Revoke(VgpuId id) {
  Hold& hold = holds_.at(id);
  hold.revoked = true;
  hold.expires = now_ + config_.drain_timeout;
  decisions_.push_back({Decision::Kind::kRevoke, id});
}

// The vGPU stopped running at `end`. A client says that, so it may be anything.
void TokenScheduler::Stop(VgpuId id, Account& account, Nanos end) {
  account.Stop(std::clamp(end, account.settled(), now_));
  AdvanceVirtualTime();
  holds_.erase(id);
  SplitAmongRunning();
}

void TokenScheduler::SettleWaiting() {
  for (auto& [id, account] : accounts_) {
    // A revoked holder may have drained a while ago; it will say when.
    if (!account.waiting() || Draining(id)) continue;
    account.Settle(now_, virtual_now_);
  }
}

void TokenScheduler::AdvanceVirtualTime() {
  SettleWaiting();
  double least = INFINITY;
  for (auto& [id, account] : accounts_) {
    if (Holds(id)) account.Settle(now_);
    if (holds_.contains(id) || account.Competes(now_)) least = std::min(least, account.virtual_time());
  }
  if (least != INFINITY) virtual_now_ = std::max(virtual_now_, least);
}

// Stragglers and holders run at the same time. The hardware slices evenly between the vGPUs that run alone and the
// spaces; within a space each has its own SMs.
void TokenScheduler::SplitAmongRunning() {
  std::set<std::pair<std::uint32_t, VgpuId>> entities;  // a space, or a vGPU in none
  for (const auto& [id, account] : accounts_) {
    const std::uint32_t space = account.shares().space.number;
    if (account.running()) entities.emplace(space, space == 0 ? id : 0);
  }
  for (auto& [_, account] : accounts_) {
    if (account.running()) account.SetPart(now_, 1.0 / static_cast<double>(entities.size()));
  }
}

// It waits and may run. One that was revoked drains first.
bool TokenScheduler::MayStart(Accounts::const_iterator it) const {
  return it->second.waiting() && it->second.Eligible() && !holds_.contains(it->first);
}

// Those that wait and may run, the first in the order first.
std::vector<TokenScheduler::Accounts::iterator> TokenScheduler::InLine() {
  std::vector<Accounts::iterator> line;
  for (auto it = accounts_.begin(); it != accounts_.end(); ++it) {
    if (MayStart(it)) line.push_back(it);
  }
  std::ranges::sort(line, [](const auto& a, const auto& b) {
    if (Precedes(a->second, b->second)) return true;
    return !Precedes(b->second, a->second) && a->first < b->first;
  });
  return line;
}

// The first of the vGPUs that wait and may run; end() if there is none.
TokenScheduler::Accounts::iterator TokenScheduler::Next() {
  auto best = accounts_.end();
  for (auto it = accounts_.begin(); it != accounts_.end(); ++it) {
    if (MayStart(it) && (best == accounts_.end() || Precedes(it->second, best->second))) best = it;
  }
  return best;
}

// It may hold the token beside those that hold it now.
bool TokenScheduler::Fits(const Account& account) const {
  const SpacePlace& place = account.shares().space;
  double sms = place.taken_pct();
  for (const auto& [id, _] : holds_) {
    const SpacePlace& other = accounts_.at(id).shares().space;
    if (other.number == 0 || other.number != place.number) return false;
    sms += other.taken_pct();
  }
  return sms <= 100 + kRounding;
}

// When it will fit, if the terms end as granted; a drain that has begun counts as done.
Nanos TokenScheduler::RoomAt(const Account& account) const {
  const SpacePlace& place = account.shares().space;
  std::vector<std::pair<Nanos, double>> ends;  // and SMs
  double sms = place.taken_pct();
  for (const auto& [id, hold] : holds_) {
    const SpacePlace& other = accounts_.at(id).shares().space;
    const bool same = other.number != 0 && other.number == place.number;
    const double takes = same ? other.taken_pct() : 100;
    ends.emplace_back(hold.revoked ? now_ : hold.expires, takes);
    sms += takes;
  }
  std::ranges::sort(ends);
  Nanos at = now_;
  for (const auto& [end, freed] : ends) {
    if (sms <= 100 + kRounding) break;
    sms -= freed;
    at = end;
  }
  return at;
}

// The vGPUs of the space that run or want to cannot all do so at the same time.
bool TokenScheduler::Crowded(std::uint32_t space) const {
  double sms = 0;
  for (const auto& [_, account] : accounts_) {
    const SpacePlace& place = account.shares().space;
    if (place.number == space && (account.running() || account.waiting() || account.Competes(now_))) {
      sms += place.taken_pct();
    }
  }
  return sms > 100 + kRounding;
}

Competition TokenScheduler::OthersThan(const Account* account) const {
  const std::uint32_t space = account == nullptr ? 0 : account->shares().space.number;
  const bool room_for_all = space != 0 && !Crowded(space);
  Competition others;
  for (const auto& [id, other] : accounts_) {
    if (&other == account || (room_for_all && other.shares().space.number == space)) continue;
    if (other.Competes(now_)) {
      others.request_pct += other.shares().request_pct;
      others.weight += other.shares().weight;
    } else if (other.waiting() && !Draining(id)) {
      others.eligible_at = std::min(others.eligible_at, other.EligibleAt());
    }
  }
  return others;
}

void TokenScheduler::UpdateDeadline() {
  deadline_ = kNever;
  bool closed = false;  // to whoever becomes eligible
  for (const auto& [id, hold] : holds_) {
    deadline_ = std::min(deadline_, hold.expires);
    const bool stays = hold.revoked || hold.pays == Account::Pays::kRequest;
    closed |= stays && accounts_.at(id).shares().space.number == 0;
  }
  if (!closed) deadline_ = std::min(deadline_, OthersThan(nullptr).eligible_at);
}

}  // namespace tessera::sched
