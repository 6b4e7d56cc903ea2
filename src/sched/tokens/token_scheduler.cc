#include "sched/tokens/token_scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/shares/admission.h"

namespace tessera::sched {

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
  Find(id)->SetShares(shares, now_);
  if (Holds(id, Token::State::kHeld)) token_.expires = now_;  // a new term under the new shares, or none
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
  if (account == nullptr || account->waiting() || Holds(id, Token::State::kHeld)) return;
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
  if (account == nullptr || !account->running() || Holds(id, Token::State::kHeld)) return;
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

// Does what is due now. A vGPU gets or keeps the token for a term. The term ends at its expiry, or earlier if another
// vGPU begins to compete.
void TokenScheduler::Schedule() {
  if (token_.state == Token::State::kRevoked && now_ >= token_.expires) {
    token_.state = Token::State::kFree;  // its holder runs on as a straggler
  }
  SettleWaiting();
  if (token_.state == Token::State::kHeld) {
    if (now_ >= token_.expires) {
      EndTerm();
    } else {
      CutTerm();
    }
  }
  if (token_.state == Token::State::kFree) {
    if (const auto next = Next(); next != accounts_.end()) StartTerm(next->first, next->second);
  }
  UpdateDeadline();
}

void TokenScheduler::EndTerm() {
  Account& holder = *Find(token_.holder);
  AdvanceVirtualTime();
  const auto next = Next();
  if (holder.Eligible() && (next == accounts_.end() || Precedes(holder, next->second))) {
    StartTerm(token_.holder, holder);
  } else {
    Revoke();
  }
}

// The length of a term follows from the vGPUs that competed when it began; if more do now, it may have to end earlier.
// A guaranteed term stays: it is short, and its holder is owed it.
void TokenScheduler::CutTerm() {
  const auto next = Next();
  if (token_.pays == Account::Pays::kRequest || next == accounts_.end()) return;
  Account& holder = *Find(token_.holder);
  holder.Settle(now_);
  const bool alone_till_now = token_.pays == Account::Pays::kRequestFirst;
  if (alone_till_now && holder.Owed() && holder.Eligible()) return StartTerm(token_.holder, holder);

  const Nanos slice = SurplusSlice(config_, holder.shares(), OthersThan(&holder));
  const bool preempts = Preempts(next->second, holder, slice);
  const Nanos end = preempts ? token_.since + ShortSlice(config_) : token_.term_since + slice;
  if (end <= now_) {
    EndTerm();
  } else if (end < token_.expires) {
    Grant(end);
  }
}

// Gives the token to `account`, or lets it keep it, for a term that fits the present competition.
void TokenScheduler::StartTerm(VgpuId id, Account& account) {
  if (!Holds(id, Token::State::kHeld)) token_ = {.state = Token::State::kHeld, .holder = id, .since = now_};
  account.Settle(now_);
  const Term term = TermFor(config_, account, OthersThan(&account), now_);
  account.Run(now_, term.pays);
  SplitAmongRunning();
  token_.pays = term.pays;
  token_.term_since = now_;
  Grant(term.length == kNever ? kNever : now_ + term.length);
}

void TokenScheduler::Grant(Nanos expires) {
  token_.expires = expires;
  decisions_.push_back({Decision::Kind::kGrant, token_.holder, expires, expires != kNever});
}

void TokenScheduler::Revoke() {
  token_.state = Token::State::kRevoked;
  token_.expires = now_ + config_.drain_timeout;
  decisions_.push_back({Decision::Kind::kRevoke, token_.holder});
}

// The vGPU stopped running at `end`. A client says that, so it may be anything.
void TokenScheduler::Stop(VgpuId id, Account& account, Nanos end) {
  account.Stop(std::clamp(end, account.settled(), now_));
  AdvanceVirtualTime();
  if (token_.holder == id) token_.state = Token::State::kFree;
  SplitAmongRunning();
}

void TokenScheduler::SettleWaiting() {
  for (auto& [id, account] : accounts_) {
    // A revoked holder may have drained a while ago; it will say when.
    if (!account.waiting() || Holds(id, Token::State::kRevoked)) continue;
    account.Settle(now_, virtual_now_);
  }
}

void TokenScheduler::AdvanceVirtualTime() {
  SettleWaiting();
  if (token_.state == Token::State::kHeld) Find(token_.holder)->Settle(now_);
  double least = INFINITY;
  for (const auto& [id, account] : accounts_) {
    const bool has_token = token_.state != Token::State::kFree && token_.holder == id;
    if (has_token || account.Competes(now_)) least = std::min(least, account.virtual_time());
  }
  if (least != INFINITY) virtual_now_ = std::max(virtual_now_, least);
}

// Stragglers and the holder run at the same time; the hardware slices evenly between them.
void TokenScheduler::SplitAmongRunning() {
  const auto running = std::ranges::count_if(accounts_, [](const auto& entry) { return entry.second.running(); });
  for (auto& [_, account] : accounts_) {
    if (account.running()) account.SetPart(now_, 1.0 / static_cast<double>(running));
  }
}

// The first of the vGPUs that wait and may run; end() if there is none.
TokenScheduler::Accounts::iterator TokenScheduler::Next() {
  auto best = accounts_.end();
  for (auto it = accounts_.begin(); it != accounts_.end(); ++it) {
    if (!it->second.waiting() || !it->second.Eligible()) continue;
    if (best == accounts_.end() || Precedes(it->second, best->second)) best = it;
  }
  return best;
}

Competition TokenScheduler::OthersThan(const Account* account) const {
  Competition others;
  for (const auto& [_, other] : accounts_) {
    if (&other == account) continue;
    if (other.Competes(now_)) {
      others.request_pct += other.shares().request_pct;
      others.weight += other.shares().weight;
    } else if (other.waiting()) {
      others.eligible_at = std::min(others.eligible_at, other.EligibleAt());
    }
  }
  return others;
}

void TokenScheduler::UpdateDeadline() {
  deadline_ = token_.state == Token::State::kFree ? kNever : token_.expires;
  const bool guaranteed = token_.state == Token::State::kHeld && token_.pays == Account::Pays::kRequest;
  if (token_.state == Token::State::kRevoked || guaranteed) return;
  deadline_ = std::min(deadline_, OthersThan(nullptr).eligible_at);
}

}  // namespace tessera::sched
