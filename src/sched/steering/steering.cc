#include "sched/steering/steering.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sched/shares/admission.h"

namespace tessera::sched {
namespace {

// A cycle of thaw and freeze against its bare time: its owner feels it, too.
constexpr Nanos kCyclesPerThaw = 8;
// Where no lower class waits, nothing is gained by knowing soon.
constexpr Nanos kRelaxedGrace = 5 * kMillisecond;
constexpr Nanos kRecently = kSecond;
constexpr double kGraceTolerance = 0.1;

}  // namespace

Steering::Steering(SteeringConfig config)
    : config_([&] {
        config.shares.min_slice = std::min(config.shares.min_slice, config.shares.window / 8);
        return config;
      }()),
      orders_(config_),
      limits_(config_),
      way_(config_),
      slices_(config_),
      min_share_(config_.fixed_slices ? 0 : config_.min_share_pct) {}

Result<void> Steering::Add(VgpuId id, Shares shares, Nanos now) {
  if (auto ok = AdmitNew(vgpus_, id, shares); !ok) return ok;
  Take(now);
  const Grace grace(config_.least_grace, config_.most_grace, kCyclesPerThaw * config_.cycle_cost);
  const Account account(shares, config_.shares, now_);
  SteeredVgpu& vgpu = vgpus_.emplace(id, SteeredVgpu{.id = id, .account = account, .grace = grace}).first->second;
  if (config_.fixed_slices) slices_.Fix(vgpu, orders_, now_);
  Schedule();
  return {};
}

Result<void> Steering::Update(VgpuId id, Shares shares, Nanos now) {
  if (auto ok = AdmitChange(vgpus_, id, shares); !ok) return ok;
  Take(now);
  SteeredVgpu& vgpu = *Find(id);
  vgpu.account.SetShares(shares, now_);
  if (vgpu.exhausted) vgpu.back_at = now_;
  vgpu.check_at = now_;
  slices_.ChangeAtOnce();
  if (config_.fixed_slices) slices_.Fix(vgpu, orders_, now_);
  Schedule();
  return {};
}

void Steering::Remove(VgpuId id, Nanos now) {
  if (Find(id) == nullptr) return;
  Take(now);
  std::erase(running_, Find(id));
  orders_.Forget(id);
  vgpus_.erase(id);
  Schedule();
}

void Steering::Active(VgpuId id, Nanos now) {
  SteeredVgpu* vgpu = Find(id);
  if (vgpu == nullptr || vgpu->active) return;
  Take(now);
  vgpu->active = true;
  vgpu->active_since = now_;
  if (vgpu->idle_since != kNever) vgpu->grace.Learn(now_ - vgpu->idle_since, vgpu->grace_ordered, now_);
  if (vgpu->stopped) vgpu->account.BeginWait(now_, 0);
  Schedule();
}

void Steering::Idle(VgpuId id, Nanos now, Nanos idle_since) {
  SteeredVgpu* vgpu = Find(id);
  if (vgpu == nullptr || !vgpu->active) return;
  Take(now);
  vgpu->active = false;
  vgpu->seen_active = now_;
  vgpu->idle_since = std::clamp(idle_since, vgpu->active_since, now_);
  EndRun(*vgpu, std::min(idle_since, now_));
  EndWait(*vgpu);
  Schedule();
}

void Steering::Ungated(VgpuId id, bool ungated) {
  if (SteeredVgpu* vgpu = Find(id)) vgpu->ungated = ungated;
}

void Steering::SetAside(const std::set<VgpuId>& ids, Nanos now) {
  Take(now);
  for (auto& [id, vgpu] : vgpus_) {
    const bool was = std::exchange(vgpu.aside, ids.contains(id));
    vgpu.released = was && !vgpu.aside;
  }
  Schedule();
}

void Steering::Advance(Nanos now) {
  Take(now);
  Schedule();
}

bool Steering::Urgent() const {
  if (config_.fixed_slices) return false;
  std::uint32_t lowest = 0;
  for (const SteeredVgpu* vgpu : running_) lowest = std::max(lowest, vgpu->shares().priority);
  return std::ranges::any_of(vgpus_, [&](const auto& entry) {
    const SteeredVgpu& vgpu = entry.second;
    return !vgpu.ungated && vgpu.shares().priority < lowest && way_.WouldStop(vgpu, now_);
  });
}

Nanos Steering::SliceOf(VgpuId id) const {
  const SteeredVgpu* vgpu = Find(id);
  return vgpu == nullptr ? 0 : vgpu->slice;
}

double Steering::PartOf(VgpuId id) const {
  const SteeredVgpu* vgpu = Find(id);
  return vgpu == nullptr ? 1 : vgpu->part;
}

bool Steering::AtLimit(VgpuId id) const {
  const SteeredVgpu* vgpu = Find(id);
  return vgpu != nullptr && vgpu->exhausted;
}

Usage Steering::UsageOf(VgpuId id, Nanos now) const {
  const SteeredVgpu* vgpu = Find(id);
  return vgpu == nullptr ? Usage{} : vgpu->account.UsageAt(now, now_);
}

SteeredVgpu* Steering::Find(VgpuId id) {
  const auto found = vgpus_.find(id);
  return found == vgpus_.end() ? nullptr : &found->second;
}

const SteeredVgpu* Steering::Find(VgpuId id) const {
  const auto found = vgpus_.find(id);
  return found == vgpus_.end() ? nullptr : &found->second;
}

void Steering::Schedule() {
  min_share_.Pass(now_);
  limits_.Update(vgpus_, orders_, now_);
  if (!config_.fixed_slices) way_.Update(vgpus_, orders_, now_);
  StopAndGo();
  SliceKeeper::Shorten(vgpus_, orders_, now_);
  UpdateRunning();
  slices_.Update(running_, orders_, now_);
  slices_.UpdateParts(running_, limits_, now_);
  UpdateMinShare();
  UpdateGraces();
  UpdateDeadline();
}

bool Steering::MustStop(const SteeredVgpu& vgpu) const {
  return vgpu.exhausted || vgpu.cut || vgpu.aside || (vgpu.barred && !min_share_.open());
}

// Stops first and at once, so that a vGPU that is in the way leaves the GPU. A thaw waits for the budget; the vGPU that
// has waited the longest comes first.
void Steering::StopAndGo() {
  go_due_ = kNever;
  std::vector<SteeredVgpu*> goes;
  for (auto& [_, vgpu] : vgpus_) {
    if (MustStop(vgpu) == vgpu.stopped) continue;
    if (vgpu.stopped) {
      goes.push_back(&vgpu);
    } else {
      Stop(vgpu);
    }
  }
  if (goes.size() > 1) ChooseFirst(goes);
  for (SteeredVgpu* vgpu : goes) {
    if (!vgpu->frozen || vgpu->admitted || vgpu->released || orders_.HasForGo(now_)) {
      Go(*vgpu);
    } else {
      go_due_ = orders_.When(now_, OrderList::kCallsForGo);
    }
  }
  for (auto& [_, vgpu] : vgpus_) vgpu.admitted = vgpu.released = false;
}

// Orders those that go together. The GPU begins with the channels that are put back first, and in the gaps of a higher
// class it may have no time for others: so each goes first as often as it has parts of the time.
void Steering::ChooseFirst(std::vector<SteeredVgpu*>& goes) {
  std::ranges::sort(goes, {},
                    [](const SteeredVgpu* vgpu) { return std::tuple(vgpu->stopped_at, -vgpu->first, vgpu->id); });
  const auto together = [&](const SteeredVgpu* vgpu) { return vgpu->stopped_at == goes.front()->stopped_at; };
  double parts = 0;
  for (const SteeredVgpu* vgpu : goes) parts += together(vgpu) ? vgpu->part : 0;
  for (SteeredVgpu* vgpu : goes) {
    if (together(vgpu)) vgpu->first += vgpu->part / parts;
  }
  goes.front()->first -= 1;
}

void Steering::Stop(SteeredVgpu& vgpu) {
  vgpu.stopped = true;
  vgpu.stopped_at = now_;
  const bool freezes = vgpu.active || vgpu.ungated;
  if (orders_.Push({Order::Kind::kStop, vgpu.id}, freezes)) vgpu.frozen = freezes;
  EndRun(vgpu, now_ + config_.FreezeTime());
  if (vgpu.active) vgpu.account.BeginWait(now_, 0);
}

void Steering::Go(SteeredVgpu& vgpu) {
  vgpu.stopped = false;
  const bool thaws = orders_.Push({Order::Kind::kGo, vgpu.id}, vgpu.frozen) && vgpu.frozen;
  if (thaws) vgpu.account.Settle(now_ + config_.ThawTime());
}

void Steering::UpdateRunning() {
  running_.clear();
  for (auto& [_, vgpu] : vgpus_) {
    if (!vgpu.runs()) continue;
    running_.push_back(&vgpu);
    if (vgpu.account.running()) continue;
    // Not before the thaw is done, to which Go has settled the books.
    vgpu.account.Run(std::max(now_, vgpu.account.settled()), Account::Pays::kSurplus);
    vgpu.check_at = now_;
  }
}

void Steering::UpdateMinShare() {
  bool starved = false;
  double part = 0;
  for (const auto& [_, vgpu] : vgpus_) {
    if (vgpu.shares().priority <= way_.lowest()) continue;
    starved |= vgpu.claims();
    if (vgpu.runs()) part += vgpu.part;
  }
  min_share_.Set(starved, part);
}

void Steering::UpdateGraces() {
  std::uint32_t lowest = 0;  // class that has had work lately
  for (const auto& [_, vgpu] : vgpus_) {
    const bool lately = vgpu.active || (vgpu.seen_active != kNever && now_ - vgpu.seen_active < kRecently);
    if (lately) lowest = std::max(lowest, vgpu.shares().priority);
  }
  for (auto& [id, vgpu] : vgpus_) {
    Nanos grace = vgpu.grace.value();
    const bool measured = vgpu.shares().measured;
    if (measured) grace = config_.least_grace;
    const bool matters = !config_.fixed_slices && vgpu.shares().priority < lowest && !way_.GivesWay(vgpu);
    if (!matters && !measured) grace = std::max(grace, std::min(kRelaxedGrace, config_.most_grace));
    const auto change = static_cast<double>(std::abs(grace - vgpu.grace_ordered));
    if (change <= kGraceTolerance * static_cast<double>(vgpu.grace_ordered)) continue;
    vgpu.grace_ordered = grace;
    orders_.Push({Order::Kind::kGrace, id, grace});
  }
}

void Steering::UpdateDeadline() {
  Nanos deadline = std::min({go_due_, way_.Deadline(), min_share_.Deadline(), limits_.Deadline(vgpus_, now_)});
  if (running_.size() > 1) deadline = std::min(deadline, slices_.Due());
  deadline_ = std::max(deadline, now_ + 1);
}

// Bills a run until `end`, which is what a client says and may be anything, or when a freeze will be done.
void Steering::EndRun(SteeredVgpu& vgpu, Nanos end) {
  if (!vgpu.account.running()) return;
  vgpu.ran_until = std::max(end, vgpu.account.settled());
  vgpu.account.Stop(vgpu.ran_until);
}

void Steering::EndWait(SteeredVgpu& vgpu) {
  if (!vgpu.account.waiting()) return;
  vgpu.account.Run(now_, Account::Pays::kSurplus);
  vgpu.account.Stop(now_);
}

}  // namespace tessera::sched
