#include "server/time/goal_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "server/record/events.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

bool Works(const Process& process) { return process.gate.state != GateRecord::State::kParked; }

// How long a process whose gate has closed may take to say that it has more work.
constexpr Nanos kSameBurst = kMillisecond;

bool AnyWorks(const VGpu& vgpu, const Process* without = nullptr) {
  return vgpu.burst.DrainedAt() != kNever || std::ranges::any_of(vgpu.processes, [without](const Process* process) {
           return process != without && Works(*process);
         });
}

// Programs without a shim have no bursts: the device's samples are too coarse.
bool InBurst(const VGpu& vgpu, const Process* without = nullptr) {
  return std::ranges::any_of(vgpu.processes, [without](const Process* process) {
    return process != without && !process->who.guest && Works(*process);
  });
}

std::uint64_t SubmissionsOf(const VGpu& vgpu) {
  std::uint64_t sum = 0;
  for (const Process* process : vgpu.processes) sum += process->page->submissions.load(std::memory_order_relaxed);
  return sum;
}

bool InSpace(const sched::Shares& shares) { return shares.space.number != 0; }

// Shares as Goals is told them. A request in a space needs at least so much of the GPU's time, as others run beside it.
sched::Shares Told(sched::Shares shares) {
  if (InSpace(shares)) shares.request_pct *= shares.space.sm_pct / 100;
  return shares;
}

// The order of classes holds for all vGPUs; the other terms are for those that steering knows by themselves.
sched::Shares UnderTerms(sched::Shares shares, bool goal, const sched::Terms* terms) {
  shares.measured = goal;
  if (!terms) return shares;
  shares.priority = terms->priority;
  if (InSpace(shares)) return shares;
  shares.request_pct = terms->request_pct;
  if (terms->patience) {
    shares.patience = *terms->patience;
    shares.strict = *terms->patience == 0;
  }
  return shares;
}

template <typename Map>
auto* In(Map& map, sched::VgpuId id) {
  const auto found = map.find(id);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

// ---- vGPUs ----

void GoalServer::Serve(TimeServer& server, sched::Means means, std::string why_not_all, Nanos now) {
  server_ = &server;
  modes_.Serve(server, now);
  means_ = means;
  why_not_all_ = std::move(why_not_all);
  for (const VGpu* vgpu : vgpus_) {
    if (with_goal_.contains(vgpu->id)) (void)Promise(*vgpu, vgpu->spec.compute, vgpu->spec.goal, true, now);
  }
  if (!goals_) return;
  (void)TakeChanges(0);
  std::vector<Change> changes;
  for (const auto& [id, shares] : given_) {
    if (const VGpu* vgpu = Find(id)) changes.emplace_back(id, SharesOf(*vgpu));
  }
  (void)Give(std::move(changes), 0, now);
  Act(now);
}

Result<void> GoalServer::Set(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal,
                             bool restored, Nanos now) {
  if (!goals_ && !goal) return server_->Set(vgpu.id, shares, now);
  if (!goals_) Begin(now);
  const bool known = given_.contains(vgpu.id);
  // One that could not be promised holds up no other change.
  restored |= known && unpromised_.contains(vgpu.id) && goal == vgpu.spec.goal;
  auto set = Promise(vgpu, shares, goal, restored, now);
  if (set) {
    auto changes = TakeChanges(vgpu.id);
    changes.emplace_back(vgpu.id, Under(shares, vgpu.id, goal.has_value()));
    set = Give(std::move(changes), vgpu.id, now);
    if (!set && known) {
      (void)Promise(vgpu, vgpu.spec.compute, vgpu.spec.goal, true, now);
      changes = TakeChanges(vgpu.id);
      changes.emplace_back(vgpu.id, SharesOf(vgpu));
      (void)Give(std::move(changes), vgpu.id, now);
    }
  }
  if (!set && !known) {
    goals_->Remove(vgpu.id, now);
    with_goal_.erase(vgpu.id);
    terms_.erase(vgpu.id);
  }
  modes_.Changed(now);
  Act(now);
  EndIfNone();
  return set;
}

void GoalServer::Remove(const VGpu& vgpu, Nanos now) {
  server_->Remove(vgpu.id, now);
  if (!goals_) return;
  goals_->Remove(vgpu.id, now);
  with_goal_.erase(vgpu.id);
  terms_.erase(vgpu.id);
  given_.erase(vgpu.id);
  unpromised_.erase(vgpu.id);
  modes_.Changed(now);
  Act(now);
  EndIfNone();
}

sched::Shares GoalServer::SharesOf(const VGpu& vgpu) const {
  return Under(vgpu.spec.compute, vgpu.id, with_goal_.contains(vgpu.id));
}

sched::Shares GoalServer::Under(const sched::Shares& shares, Id id, bool goal) const {
  return modes_.Under(UnderTerms(shares, goal, In(terms_, id)));
}

// The first goal has come: Goals must know all vGPUs, and which of them work.
void GoalServer::Begin(Nanos now) {
  goals_ = std::make_unique<sched::Goals>();
  for (const VGpu* vgpu : vgpus_) {
    if (vgpu->removed) continue;
    (void)goals_->Set(vgpu->id, Told(vgpu->spec.compute), {}, now, BackingOf(*vgpu, vgpu->spec.compute, {}));
    given_[vgpu->id] = vgpu->spec.compute;
    if (AnyWorks(*vgpu)) goals_->Began(vgpu->id, now);
  }
}

// Not before all spaces run at once again.
void GoalServer::EndIfNone() {
  if (!goals_ || !with_goal_.empty() || modes_.Any()) return;
  goals_.reset();
  terms_.clear();
  given_.clear();
  unpromised_.clear();
}

// A user's request does not rise above the promise, which the user's quota has admitted.
sched::Backing GoalServer::BackingOf(const VGpu& vgpu, const sched::Shares& shares,
                                     const std::optional<sched::Goal>& goal) const {
  const bool latency = goal && std::holds_alternative<sched::LatencyGoal>(*goal);
  const bool nothing = InSpace(shares) || (latency && means_ != sched::Means::kAll) || unpromised_.contains(vgpu.id);
  const bool bounded = vgpu.spec.uid != 0 && vgpu.spec.uid != geteuid();
  return {.means = nothing ? sched::Means::kNone : means_,
          .most_request_pct = bounded ? 0.0 : 100.0,
          .name = vgpu.spec.name,
          .owner = vgpu.spec.uid};
}

// Why not all is done for the goal of a vGPU; empty if all is.
std::string GoalServer::NoteOn(const VGpu& vgpu) const {
  if (InSpace(vgpu.spec.compute)) return "only measured, as the vGPU is in a space";
  if (const std::string* why = In(unpromised_, vgpu.id)) return "not promised: " + *why;
  return why_not_all_;
}

Result<void> GoalServer::Promise(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal,
                                 bool restored, Nanos now) {
  const auto ask = [&] { return goals_->Set(vgpu.id, Told(shares), goal, now, BackingOf(vgpu, shares, goal)); };
  std::optional<std::string> before;
  if (const std::string* why = In(unpromised_, vgpu.id)) before = *why;
  unpromised_.erase(vgpu.id);
  auto set = ask();
  if (!set && restored && goal) {
    unpromised_[vgpu.id] = set.error().message;
    if (!before) log::Warn("vGPU {}: its goal is not promised: {}", vgpu.spec.name, set.error().Text());
    set = ask();
  }
  if (!set) {
    if (before) unpromised_[vgpu.id] = *before;
    return set;
  }
  terms_.erase(vgpu.id);  // it has its shares as told, until terms come
  if (goal) {
    with_goal_.insert(vgpu.id);
  } else {
    with_goal_.erase(vgpu.id);
  }
  return {};
}

// ---- shares ----

const VGpu* GoalServer::Find(Id id) const {
  const auto found = std::ranges::find(vgpus_, id, &VGpu::id);
  return found == vgpus_.end() || (*found)->removed ? nullptr : *found;
}

// The shares of all but one whose terms have changed.
std::vector<GoalServer::Change> GoalServer::TakeChanges(Id without) {
  std::vector<Change> changes;
  for (const sched::Terms& terms : goals_->TakeTerms()) {
    terms_[terms.vgpu] = terms;
    const VGpu* vgpu = Find(terms.vgpu);
    if (vgpu && terms.vgpu != without) changes.emplace_back(terms.vgpu, SharesOf(*vgpu));
  }
  return changes;
}

// Gives the time server these shares. Returns what it says to those of `own`; to the others it cannot object, or they
// keep what they had.
//
// In an order in which no class is passed by one below it, so that nobody is stopped for a moment: first those that
// rise, from the top, then those that fall, from the bottom, then a new one. Requests rise at last, when others have
// fallen.
Result<void> GoalServer::Give(std::vector<Change> changes, Id own, Nanos now) {
  const auto place = [this](const Change& change) {
    const sched::Shares* before = In(given_, change.first);
    const auto priority = static_cast<int>(change.second.priority);
    if (!before) return std::pair(2, priority);
    return change.second.priority <= before->priority ? std::pair(0, priority) : std::pair(1, -priority);
  };
  std::ranges::sort(changes, std::ranges::less{}, place);
  Result<void> result;
  std::vector<const Change*> rising;
  for (const Change& change : changes) {
    sched::Shares shares = change.second;
    if (const sched::Shares* before = In(given_, change.first); !before || before->request_pct < shares.request_pct) {
      rising.push_back(&change);
      if (!before) continue;
      shares.request_pct = std::min(before->request_pct, shares.request_pct);
    }
    if (auto given = GiveOne(change.first, shares, now); !given && change.first == own) return given;
  }
  for (const Change* change : rising) {
    if (auto given = GiveOne(change->first, change->second, now); !given && change->first == own) result = given;
  }
  return result;
}

Result<void> GoalServer::GiveOne(Id id, const sched::Shares& shares, Nanos now) {
  auto given = server_->Set(id, shares, now);
  if (given) given_[id] = shares;
  return given;
}

// ---- bursts ----

void GoalServer::Works(const Process& process, Nanos now) {
  EndDrained(now);
  VGpu& vgpu = *process.vgpu;
  bool alone = true;
  for (VGpu* other : vgpus_) {
    if (other == &vgpu) continue;
    other->burst.Share();
    alone = alone && !AnyWorks(*other);
  }
  if (!process.who.guest) vgpu.burst.Works(now, SubmissionsOf(vgpu), alone);
  if (drained_end_ != kNever) drained_end_ = DrainedEnd();  // so the loop need not wake for it
  Tell(vgpu, now);
}

void GoalServer::Idle(const Process& process, Nanos since, Nanos now) {
  VGpu& vgpu = *process.vgpu;
  if (!process.who.guest) EndBurst(vgpu, std::min(since, now), InBurst(vgpu), now);
  Tell(vgpu, now);
}

void GoalServer::EndBurst(VGpu& vgpu, Nanos since, bool goes_on, Nanos now) {
  const auto burst = vgpu.burst.Idle(since, goes_on, SubmissionsOf(vgpu));
  if (!burst) return;
  vgpu.bursts.Note(*burst);
  if (goals_) goals_->Ended(vgpu.id, burst->end, burst->submissions, now);
}

// A turn's end is no burst's end.
void GoalServer::Drained(const Process& process, Nanos since, Nanos now) {
  VGpu& vgpu = *process.vgpu;
  if (process.who.guest || InBurst(vgpu)) return Idle(process, since, now);
  vgpu.burst.Drain(std::min(since, now), now);
  if (vgpu.burst.DrainedAt() != kNever) drained_end_ = std::min(drained_end_, now + kSameBurst);
}

Nanos GoalServer::DrainedEnd() const {
  Nanos first = kNever;
  for (const VGpu* vgpu : vgpus_) {
    if (vgpu->burst.DrainedAt() != kNever) first = std::min(first, vgpu->burst.DrainedAt() + kSameBurst);
  }
  return first;
}

// Nothing waited at the gates.
void GoalServer::EndDrained(Nanos now) {
  if (now < drained_end_) return;
  for (VGpu* vgpu : vgpus_) {
    if (vgpu->burst.DrainedAt() == kNever || now < vgpu->burst.DrainedAt() + kSameBurst) continue;
    EndBurst(*vgpu, vgpu->burst.End(), false, now);
    Tell(*vgpu, now);
  }
  drained_end_ = DrainedEnd();
}

void GoalServer::Left(const Process& process, Nanos now) {
  VGpu& vgpu = *process.vgpu;
  if (InBurst(vgpu, &process)) return;
  vgpu.burst.Drop();
  if (!goals_ || AnyWorks(vgpu, &process)) return;
  goals_->Dropped(vgpu.id, now);
  Act(now);
}

void GoalServer::NoteRequests(VGpu& vgpu, std::span<const Nanos> latencies, Nanos now) {
  vgpu.bursts.NoteRequests(latencies.size());
  if (!goals_) return;
  goals_->Told(vgpu.id, latencies, now);
  Act(now);
}

// Whether the vGPU works, in a burst or not.
void GoalServer::Tell(const VGpu& vgpu, Nanos now) {
  if (!goals_) return;
  if (AnyWorks(vgpu)) {
    goals_->Began(vgpu.id, now);
  } else {
    goals_->Dropped(vgpu.id, now);
  }
  Act(now);
}

// ---- what comes of it ----

void GoalServer::Advance(Nanos now) {
  if (now < NextDeadline()) return;
  EndDrained(now);
  for (const VGpu* vgpu : vgpus_) {
    if (with_goal_.contains(vgpu->id) && InBurst(*vgpu))
      goals_->Progress(vgpu->id, vgpu->burst.Submissions(SubmissionsOf(*vgpu)), now);
  }
  if (goals_) goals_->Advance(now);
  std::vector<Change> changes;
  for (const Id id : modes_.Advance(goals_.get(), now)) {
    if (const VGpu* vgpu = Find(id)) changes.emplace_back(id, SharesOf(*vgpu));
  }
  (void)Give(std::move(changes), 0, now);
  Act(now);
  EndIfNone();
}

void GoalServer::Act(Nanos now) {
  if (!goals_) return;
  if (auto changes = TakeChanges(0); !changes.empty()) (void)Give(std::move(changes), 0, now);
  SetAside(now);
  TellVerdicts(now);
}

void GoalServer::SetAside(Nanos now) {
  std::set<Id> aside;
  if (goals_->audited()) {
    for (const VGpu* vgpu : vgpus_) {
      if (!vgpu->removed && goals_->Stands(vgpu->id)) aside.insert(vgpu->id);
    }
  }
  aside_.Set(Aside::For::kAudit, std::move(aside), now);
}

void GoalServer::TellVerdicts(Nanos now) {
  for (const sched::Verdict& verdict : goals_->TakeVerdicts()) {
    const VGpu* vgpu = Find(verdict.vgpu);
    if (!vgpu || !vgpu->spec.goal) continue;
    if (verdict.kind == sched::Verdict::Kind::kMissed) modes_.GoalMissed(*vgpu, now);
    std::string text = fmt::format("{}: {}", sched::FormatGoal(*vgpu->spec.goal), NameOf(verdict.kind));
    if (!verdict.why.empty()) text += ": " + verdict.why;
    events::Note({.type = EventType::kGoal,
                  .gpu = vgpu->gpu,
                  .vgpu = vgpu->spec.name,
                  .owner = vgpu->spec.uid,
                  .text = std::move(text)});
  }
}

std::optional<sched::GoalReport> GoalServer::ReportOf(const VGpu& vgpu, Nanos now) const {
  auto report = goals_ ? goals_->ReportOf(vgpu.id, now) : std::nullopt;
  if (!report) return report;
  if (const std::string note = NoteOn(vgpu); !note.empty())
    report->verdict.why += (report->verdict.why.empty() ? "" : "; ") + note;
  return report;
}

}  // namespace tessera::server
