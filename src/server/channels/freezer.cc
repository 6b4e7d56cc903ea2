#include "server/channels/freezer.h"

#include <algorithm>
#include <utility>

#include "server/record/log.h"
#include "server/record/trace.h"

namespace tessera::server {
namespace {

constexpr std::uint32_t kMostGpus = 64;

// An operator stops all that a process does, as does memory that it must not have, and a move, under which nothing may
// touch memory. A policy stops what computes.
std::optional<channel::Reach> ReachOf(FreezeReason reasons) {
  if (!Any(reasons)) return {};
  return Any(reasons - FreezeReason::kPolicy) ? channel::Reach::kAll : channel::Reach::kCompute;
}

}  // namespace

Freezer::Freezer(channel::Control* control, const Availability& availability, channel::Watchdog* watchdog,
                 ChannelTable& table, DriverCalls& calls)
    : control_(control), availability_(availability), watchdog_(watchdog), table_(table), calls_(calls) {
  if (!control_) return;
  account_ = std::make_unique<channel::FreezeAccount>(*control_, [this](bool freeze, Nanos took, Nanos ended) {
    calls_.rate.Note(ended);
    (freeze ? calls_.freezes : calls_.thaws).Note(took);
  });
}

const Freezer::Use* Freezer::Find(pid_t pid, std::uint32_t gpu) const {
  const auto process = uses_.find(pid);
  if (process == uses_.end()) return nullptr;
  const auto use = process->second.find(gpu);
  return use == process->second.end() ? nullptr : &use->second;
}

Freezer::Status Freezer::StatusOf(pid_t pid, std::uint32_t gpu) const {
  const Use* use = Find(pid, gpu);
  return use ? Status{use->reasons, use->frozen_at, use->still_at} : Status{};
}

// Whether the process could go on with one of its GPUs. While memory is moved none of them works that may reach it: it
// is not known which move stopped this one.
bool Freezer::MayRun(const Uses& uses, const Use& use) {
  return !Has(use.reasons, FreezeReason::kMove) ||
         std::ranges::all_of(uses, [](const auto& each) { return !each.second.guard || each.second.guard->Release(); });
}

// Whether all addresses of the process are valid, on all its GPUs.
bool Freezer::Safe(pid_t pid) const {
  const auto found = uses_.find(pid);
  return found == uses_.end() || std::ranges::all_of(found->second, [](const auto& each) {
           return !each.second.guard || each.second.guard->Safe();
         });
}

// ---- freezes and thaws ----

Result<void> Freezer::Change(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason, bool frozen) {
  if (!Available(gpu)) return Fail(ENOSYS, "channels cannot be steered here: " + availability_.Why(gpu));
  if (let_go_) return {};
  Beat();
  std::vector<pid_t> changed;
  for (const pid_t pid : pids) {
    if (table_.IsClient(pid, gpu) || !table_.Verify(pid)) continue;  // its gate stops it
    Use& use = uses_[pid][gpu];
    const FreezeReason before = use.reasons;
    use.reasons = frozen ? before | reason : before - reason;
    if (use.reasons == before) continue;
    if (frozen && !Any(before)) TakeOverLeftOver(gpu, pid);
    changed.push_back(pid);
    if (frozen) Note(gpu, pid, use);  // first: this daemon may be killed in the middle
  }
  return Settle(gpu, changed);
}

std::optional<channel::Reach> Freezer::ReachNow(pid_t pid, Use& use) const {
  const auto reach = ReachOf(use.reasons);
  use.spared = reach == channel::Reach::kCompute && table_.Spared(pid, MonotonicNow());
  return use.spared ? std::nullopt : reach;
}

// Makes the GPU do what the reasons say.
Result<void> Freezer::Settle(std::uint32_t gpu, std::span<const pid_t> pids) {
  if (!account_) return {};
  std::vector<channel::FreezeAccount::Wish> wishes;
  for (const pid_t pid : pids) wishes.push_back({table_.TargetOn(pid, gpu), ReachNow(pid, uses_[pid][gpu])});
  const auto outcomes = account_->Settle(gpu, wishes);
  Result<void> done;
  const Nanos now = MonotonicNow();  // when the driver has done it
  for (std::size_t i = 0; i < pids.size(); ++i) {
    Settled(gpu, pids[i], outcomes[i], now);
    if (!outcomes[i].done) done = outcomes[i].done;
  }
  return done;
}

void Freezer::Settled(std::uint32_t gpu, pid_t pid, const channel::FreezeAccount::Outcome& outcome, Nanos now) {
  Use& use = uses_[pid][gpu];
  const auto since = [now](bool holds, Nanos& when) { when = !holds ? 0 : when != 0 ? when : now; };
  since(Any(use.reasons) && !use.spared, use.frozen_at);
  if (outcome.done && std::exchange(use.traced, use.reasons) != use.reasons)
    trace::Note({.at = now,
                 .took = outcome.took,
                 .value = static_cast<std::uint64_t>(use.reasons),
                 .pid = pid,
                 .gpu = gpu,
                 .kind = Any(use.reasons) ? TraceKind::kFrozen : TraceKind::kThawed});
  if (outcome.froze) use.still_at = 0;  // until now something of it could execute
  // Where nothing is known of it, or the freeze failed, nothing can be said.
  const bool still = outcome.done && account_->AnyOff(pid, gpu) && ReachOf(use.reasons) == channel::Reach::kAll;
  since(still, use.still_at);
  Note(gpu, pid, use);
}

// The watchdog thaws what policy froze when this daemon cannot; what an operator froze stays.
void Freezer::Note(std::uint32_t gpu, pid_t pid, const Use& use) {
  if (!watchdog_) return;
  const bool off = Any(use.reasons) || account_->AnyOff(pid, gpu);
  if (off && !Has(use.reasons, FreezeReason::kOperator)) {
    watchdog_->NoteFrozen(pid, gpu, table_.TargetOn(pid, gpu));
  } else {
    watchdog_->NoteThawed(pid, gpu);
  }
}

// ---- processes that come, change and go ----

void Freezer::HeedMoveGuard(pid_t pid, std::uint32_t gpu, int file, std::uint32_t offset) {
  if (let_go_) return;
  Use& use = uses_[pid][gpu];
  use.guard.emplace(file, offset);
  use.waits = false;
  if (watchdog_) watchdog_->HeedMoveGuard(pid, gpu, file, offset);
}

void Freezer::ChannelsChanged(pid_t pid, bool freed) {
  Beat();
  const auto found = uses_.find(pid);
  if (found == uses_.end() || !account_) return;
  for (auto& [gpu, use] : found->second) {
    // Only by a free: a program that tells a new daemon of a group again does not end its channels.
    if (freed) account_->KeepOnly(pid, gpu, table_.Groups(pid, gpu));
    if (!Any(use.reasons) && !account_->AnyOff(pid, gpu)) continue;
    if (!table_.Verify(pid)) continue;  // a neighbour's, perhaps
    if (auto settled = Settle(gpu, {&pid, 1}); !settled)
      log::Warn("new channels of process {} are not frozen: {}", pid, settled.error().Text());
  }
}

void Freezer::TakeOver(pid_t pid, const channel::ObjectTable& frozen) {
  if (!account_) return;
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu) {
    const auto groups = frozen.Groups(control_->DeviceInstance(gpu));
    if (groups.empty()) continue;
    uses_[pid][gpu].fresh = false;
    account_->TakeOver(gpu, {.pid = pid, .groups = groups});
  }
}

void Freezer::ThawLeftOver(std::uint32_t gpu, pid_t pid) {
  // A process that cannot go on yet will be stopped, and goes on when that ends.
  if (!Any(uses_[pid][gpu].reasons) && Safe(pid)) TakeOverLeftOver(gpu, pid);
}

// Channels that are off must not be taken off twice, and the driver cannot be asked whether they are (FreezeAccount).
// So a process that may run is thawed; this changes nothing for channels that were on. A process whose memory is not in
// place (an earlier daemon froze it, or gates hold it for a move) must not run even for a moment: its channels are
// taken off once more, and later put back twice.
void Freezer::TakeOverLeftOver(std::uint32_t gpu, pid_t pid) {
  if (!Available(gpu) || !table_.IsOlder(pid) || !uses_[pid][gpu].fresh || !table_.Verify(pid)) return;
  Use& use = uses_[pid][gpu];
  use.fresh = false;
  const channel::Target target = table_.TargetOn(pid, gpu);
  if (!Safe(pid)) return account_->MayBeOff(gpu, target);
  calls_.rate.Note(MonotonicNow());
  (void)control_->Thaw(gpu, {&target, 1}, channel::Reach::kAll);
}

void Freezer::Release(pid_t pid) {
  const auto found = uses_.find(pid);
  if (let_go_ || found == uses_.end()) return;
  Beat();
  const bool lives = table_.Alive(pid);
  for (auto& [gpu, use] : found->second) {
    const bool alive = lives && Available(gpu);
    use.waits = alive && !MayRun(found->second, use);
    const FreezeReason stay = FreezeReason::kOperator | FreezeReason::kMemory | If(use.waits, FreezeReason::kMove);
    use.reasons = If(alive, use.reasons & stay);
    if (alive) {
      (void)Settle(gpu, {&pid, 1});
    } else if (watchdog_) {
      watchdog_->NoteThawed(pid, gpu);
    }
  }
}

void Freezer::ReleaseClient(pid_t server, pid_t client) {
  const auto found = uses_.find(server);
  if (let_go_ || !account_ || found == uses_.end() || !table_.Alive(client) || !Safe(client)) return;
  for (const auto& [gpu, use] : found->second) {
    const channel::FreezeAccount::Wish wish = {.target = {.pid = server, .groups = table_.Groups(client, gpu)},
                                               .reach = {}};
    if (Available(gpu) && account_->AnyOff(server, gpu)) (void)account_->Settle(gpu, {&wish, 1});
  }
}

bool Freezer::Forget(pid_t pid) {
  Release(pid);
  const auto found = uses_.find(pid);
  if (found == uses_.end()) return true;
  if (let_go_ || std::ranges::any_of(found->second, [](const auto& use) { return Any(use.second.reasons); }))
    return false;
  for (const auto& [gpu, use] : found->second) {
    if (use.guard && watchdog_) watchdog_->DropMoveGuard(pid, gpu);
  }
  uses_.erase(found);
  if (account_) account_->Forget(pid);
  return true;
}

// ---- the daemon's own life ----

void Freezer::Beat() {
  if (!watchdog_ || !watchdog_->Beat()) return;
  log::Error("this daemon did not respond for a while, and its watchdog thawed what policy had frozen");
  for (auto& [pid, uses] : uses_) {
    for (auto& [gpu, use] : uses) {
      // It leaves processes frozen that cannot go on. It may have failed for some of the channels.
      if (!watchdog_->Undid(pid, gpu)) continue;
      account_->Undone(gpu, table_.TargetOn(pid, gpu));
      use.still_at = 0;
      (void)Settle(gpu, {&pid, 1});
    }
  }
}

void Freezer::CatchUp() {
  if (let_go_) return;
  for (auto& [pid, uses] : uses_) {
    for (auto& [gpu, use] : uses) {
      if (!Available(gpu)) continue;
      if (use.waits && MayRun(uses, use)) {
        use.waits = false;
        use.reasons -= FreezeReason::kMove;
      }
      const bool thaws = !Any(use.reasons) && account_->AnyOff(pid, gpu);
      if (thaws || (use.spared && !table_.Spared(pid, MonotonicNow()))) (void)Settle(gpu, {&pid, 1});
    }
  }
}

void Freezer::LetGo() {
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu) {
    for (const FreezeReason reason : {FreezeReason::kPolicy, FreezeReason::kMove, FreezeReason::kMemory}) {
      std::vector<pid_t> frozen;
      for (const auto& [pid, uses] : uses_) {
        const auto use = uses.find(gpu);
        if (use == uses.end() || !Has(use->second.reasons, reason)) continue;
        if (reason != FreezeReason::kMove || MayRun(uses, use->second)) frozen.push_back(pid);
      }
      if (!frozen.empty()) (void)Thaw(gpu, frozen, reason);  // what fails now the watchdog does
    }
  }
  let_go_ = true;
}

}  // namespace tessera::server
