#include "server/channels/channel_server.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "server/model/process_start.h"
#include "server/record/log.h"
#include "server/record/trace.h"

namespace tessera::server {
namespace {

constexpr std::uint32_t kMostGpus = 64;
constexpr std::size_t kMostFalseClaims = 256;  // of one program: that many contexts may end while we look

// An operator stops all that a process does, as does memory that it must not have, and a move, under which nothing may
// touch memory; the other reasons stop what computes.
channel::Reach ReachOf(FreezeReason reasons) {
  return Any(reasons - FreezeReason::kPolicy) ? channel::Reach::kAll : channel::Reach::kCompute;
}

// Computing first: a process without such a group has nothing to steer.
bool Computes(const channel::Group& group) {
  return group.handle == 0 || group.engine == channel::abi::kEngineGraphics || group.engine == 0;
}

}  // namespace

ChannelServer::ChannelServer(std::unique_ptr<channel::Control> control, std::string why, channel::Watchdog* watchdog)
    : control_(std::move(control)),
      why_(std::move(why)),
      watchdog_(watchdog),
      started_(ProcessStart(getpid()).value_or(0)) {
  if (!control_ && why_.empty()) why_ = "there is no way to steer them";
}

void ChannelServer::LetGo() {
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu) {
    for (const FreezeReason reason : {FreezeReason::kPolicy, FreezeReason::kMove, FreezeReason::kMemory}) {
      std::vector<pid_t> frozen;
      for (const auto& [pid, process] : processes_) {
        const auto use = process.uses.find(gpu);
        if (use == process.uses.end() || !Has(use->second.reasons, reason)) continue;
        if (reason != FreezeReason::kMove || use->second.MayRun()) frozen.push_back(pid);
      }
      if (!frozen.empty()) (void)Thaw(gpu, frozen, reason);  // what fails now the watchdog does
    }
  }
  let_go_ = true;
}

bool ChannelServer::Alive(const Process& process) {
  pollfd end{.fd = process.fd.Get(), .events = POLLIN, .revents = 0};
  return process.fd && poll(&end, 1, 0) == 0;
}

void ChannelServer::SetAvailable(std::string why) {
  if (control_) why_ = std::move(why);
  testing_ = false;
}

void ChannelServer::BeginTest() {
  SetAvailable("its test is under way");
  testing_ = true;
}

ChannelServer::Process& ChannelServer::Find(pid_t pid) {
  Process& process = processes_[pid];
  if (!process.fd) {
    process.fd.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    const auto start = ProcessStart(pid);
    process.older = start && *start < started_;
  }
  return process;
}

void ChannelServer::Observe(pid_t pid, const channel::ObjectEvent& event, Source source, Nanos now) {
  Beat();
  Process& process = Find(pid);
  if (source != Source::kGuard && process.guarded) return;
  if (source == Source::kGuard && !std::exchange(process.guarded, true)) {
    process.objects = {};
    process.claimed = process.refused = false;
  }
  if (!process.objects.Apply(event)) return;
  if (source == Source::kShim) {
    process.claimed = true;
    process.verified = false;
  } else if (!process.claimed) {
    process.verified = true;
  }
  for (auto& [gpu, use] : process.uses) {
    // Only by a free: a program that tells a new daemon of a group again does not end its channels.
    if (event.kind == channel::ObjectEvent::Kind::kFree) Prune(pid, gpu, use);
    if (!Any(use.reasons) && use.off.empty()) continue;
    if (control_ && !control_->KnowsProcesses() && !Verify(pid, process)) continue;  // a neighbour's, perhaps
    if (auto settled = Settle(gpu, {&pid, 1}); !settled)
      log::Warn("new channels of process {} are not frozen: {}", pid, settled.error().Text());
  }
  if (on_change_) on_change_(pid, now);
}

// Forgets channels that are no more: their handles may come back as others'.
void ChannelServer::Prune(pid_t pid, std::uint32_t gpu, Use& use) const {
  std::set<Channel> existing;
  for (const channel::Group& group : Groups(pid, gpu)) {
    for (const std::uint32_t handle : group.channels) existing.emplace(group.client, handle);
  }
  for (auto* off : {&use.off, &use.off_before})
    std::erase_if(*off, [&](const Channel& channel) { return !existing.contains(channel); });
}

void ChannelServer::Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events, bool frozen) {
  Process& process = Find(pid);
  // What it made since then is not frozen, and what it told since then is not proved by that.
  channel::ObjectTable then;
  for (const auto& event : events) {
    then.Apply(event);
    process.objects.Apply(event);
  }
  process.verified = process.verified || !process.claimed;
  if (!frozen || !control_) return;
  left_.insert(pid);
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu) {
    for (const channel::Group& group : then.Groups(control_->DeviceInstance(gpu))) {
      Use& use = process.uses[gpu];
      use.fresh = false;
      for (const std::uint32_t handle : group.channels) use.off.emplace(group.client, handle);
    }
  }
}

// The device between client and group is named anew: only its instance matters.
std::vector<channel::ObjectEvent> ChannelServer::Objects(pid_t pid) const {
  constexpr std::uint32_t kDeviceHandle = 0xffff0000;
  using Kind = channel::ObjectEvent::Kind;
  namespace abi = channel::abi;
  std::vector<channel::ObjectEvent> events;
  for (std::uint32_t gpu = 0; control_ && gpu < kMostGpus; ++gpu) {
    const std::uint32_t instance = control_->DeviceInstance(gpu);
    for (const channel::Group& group : Groups(pid, gpu)) {
      const auto add = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
        events.push_back({Kind::kAlloc, group.fd, group.client, parent, object, cls, detail});
      };
      const bool known = std::ranges::any_of(events, [&](const auto& event) { return event.object == group.client; });
      if (!known) add(0, group.client, abi::kRootClient, 0);
      const std::uint32_t device = kDeviceHandle + instance;
      add(group.client, device, abi::kDevice, instance);
      const std::uint32_t parent = group.handle != 0 ? group.handle : device;
      if (group.handle != 0) add(device, group.handle, abi::kChannelGroup, group.engine);
      for (const std::uint32_t channel : group.channels) add(parent, channel, abi::kAnyChannel, 0);
    }
  }
  return events;
}

void ChannelServer::ThawLeftOver(std::uint32_t gpu, pid_t pid) {
  Process& process = Find(pid);
  // Who cannot go on yet will be stopped, and goes on when that ends.
  if (Use& use = process.uses[gpu]; !Any(use.reasons) && (!use.guard || use.guard->Safe())) TakeOver(gpu, pid, process);
}

// RM counts: what is off already must not be taken off twice, and nobody can ask whether it is. So who could go on is
// thawed; what is not off is as it was. Whose memory is not where its kernels would find it must not run for a moment,
// whether it stands still since an earlier daemon or is being moved by gates: it is taken off, and put back twice.
void ChannelServer::TakeOver(std::uint32_t gpu, pid_t pid, Process& process) {
  if (!Available() || !process.older || !process.uses[gpu].fresh) return;
  if (!control_->KnowsProcesses() && !Verify(pid, process)) return;
  Use& use = process.uses[gpu];
  use.fresh = false;
  const channel::Target target = TargetOf(pid, process, gpu);
  if (use.guard && !use.guard->Safe()) {
    for (const channel::Group& group : target.groups) {
      for (const std::uint32_t handle : group.channels) use.off_before.emplace(group.client, handle);
    }
    return;
  }
  calls_.Note(MonotonicNow());
  (void)control_->Thaw(gpu, {&target, 1}, channel::Reach::kAll);
}

void ChannelServer::Release(pid_t pid) {
  const auto found = processes_.find(pid);
  if (let_go_ || found == processes_.end()) return;
  Beat();
  const bool alive = Available() && Alive(found->second);
  for (auto& [gpu, use] : found->second.uses) {
    use.waits = alive && !use.MayRun();
    const FreezeReason stay = FreezeReason::kOperator | FreezeReason::kMemory | If(use.waits, FreezeReason::kMove);
    use.reasons = If(alive, use.reasons & stay);
    if (alive) {
      (void)Settle(gpu, {&pid, 1});
    } else if (watchdog_) {
      watchdog_->NoteThawed(pid, gpu);
    }
  }
}

void ChannelServer::Forget(pid_t pid) {
  Release(pid);
  const auto found = processes_.find(pid);
  if (let_go_ || found == processes_.end()) return;
  const auto frozen = [](const auto& use) { return Any(use.second.reasons); };
  if (std::ranges::any_of(found->second.uses, frozen)) {
    left_.insert(pid);
  } else {
    for (const auto& [gpu, use] : found->second.uses) {
      if (use.guard && watchdog_) watchdog_->Unguard(pid, gpu);
    }
    processes_.erase(found);
  }
}

void ChannelServer::Guard(pid_t pid, std::uint32_t gpu, int file, std::uint32_t offset) {
  if (let_go_) return;
  Use& use = Find(pid).uses[gpu];
  use.guard.emplace(file, offset);
  use.waits = false;
  if (watchdog_) watchdog_->Guard(pid, gpu, file, offset);
}

void ChannelServer::Reap() {
  for (const pid_t pid : std::exchange(left_, {})) {
    const auto found = processes_.find(pid);
    if (found == processes_.end()) continue;
    if (Alive(found->second)) {
      left_.insert(pid);
    } else {
      Forget(pid);
    }
  }
}

// A claim is true if the process's own file answers for the client, which then owns all that is claimed under it. A
// client without a group cannot be asked. Where files cannot be borrowed, the daemon serves only its own user.
bool ChannelServer::Verify(pid_t pid, Process& process) {
  if (process.verified || process.refused || !control_) return process.verified;
  std::map<std::uint32_t, bool> clients;  // whether they proved to be the process's
  std::vector<channel::Group> gone;
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu) {
    channel::Target target = TargetOf(pid, process, gpu);
    const auto groups = std::move(target.groups);
    for (const channel::Group& group : groups) {
      if (group.handle == 0 || clients[group.client]) {
        clients.try_emplace(group.client, false);
        continue;
      }
      target.groups = {group};
      target.groups[0].engine = channel::abi::kEngineGraphics;  // those that copy have a slice to ask for, too
      const auto slice = control_->Slice(gpu, target);
      if (slice || slice.error().code == EPERM || slice.error().code == ESRCH) {
        clients[group.client] = true;
      } else if (slice.error().code == ENOENT) {
        gone.push_back(group);
      }
    }
  }
  // Nobody has it: it ended, and the news of that is under way or never comes (a file that was closed). Whoever claims
  // such things again and again is refused.
  for (const channel::Group& group : gone) {
    process.objects.Apply({.kind = channel::ObjectEvent::Kind::kFree, .client = group.client, .object = group.handle});
    if (!clients[group.client]) clients.erase(group.client);
  }
  process.false_claims += gone.size();
  const bool proved = std::ranges::all_of(clients, [](const auto& client) { return client.second; });
  if (proved && process.false_claims < kMostFalseClaims) return process.verified = true;
  log::Warn("process {} claims channels that are not its own; they are not steered", pid);
  process.refused = true;
  process.objects = {};
  return false;
}

bool ChannelServer::Knows(pid_t pid, std::uint32_t gpu) {
  if (!Available()) return false;
  if (control_->KnowsProcesses()) return true;
  const auto found = processes_.find(pid);
  return found != processes_.end() && std::ranges::any_of(Groups(pid, gpu), Computes) && Verify(pid, found->second);
}

std::vector<channel::Group> ChannelServer::Groups(pid_t pid, std::uint32_t gpu) const {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || !control_) return {};
  return found->second.objects.Groups(control_->DeviceInstance(gpu));
}

std::size_t ChannelServer::Channels(pid_t pid) const {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? 0 : found->second.objects.Channels();
}

channel::Target ChannelServer::TargetOf(pid_t pid, const Process& process, std::uint32_t gpu) const {
  return {.pid = pid, .process_fd = process.fd.Get(), .groups = process.objects.Groups(control_->DeviceInstance(gpu))};
}

Result<void> ChannelServer::Freeze(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason) {
  return Change(gpu, pids, reason, true);
}

Result<void> ChannelServer::Thaw(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason) {
  return Change(gpu, pids, reason, false);
}

Result<void> ChannelServer::Change(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason, bool frozen) {
  if (!Available()) return Fail(ENOSYS, "channels cannot be steered here: " + why_);
  if (let_go_) return {};
  Beat();
  std::vector<pid_t> changed;
  for (const pid_t pid : pids) {
    Process& process = Find(pid);
    if (!control_->KnowsProcesses() && !Verify(pid, process)) continue;
    Use& use = process.uses[gpu];
    const FreezeReason before = use.reasons;
    use.reasons = frozen ? before | reason : before - reason;
    if (use.reasons == before) continue;
    if (frozen && !Any(before)) TakeOver(gpu, pid, process);
    changed.push_back(pid);
    if (frozen) Note(pid, gpu, process, use);  // first: this daemon may be killed in the middle
  }
  return Settle(gpu, changed);
}

// The channels to take off the GPU, or to put back, so that those are off that the reasons ask for.
channel::Target ChannelServer::Difference(pid_t pid, const Process& process, std::uint32_t gpu, Use& use,
                                          bool freeze) const {
  channel::Target target = TargetOf(pid, process, gpu);
  if (control_->KnowsProcesses()) {
    const auto wanted = Any(use.reasons) ? std::optional(ReachOf(use.reasons)) : std::nullopt;
    if (wanted.has_value() != freeze || wanted == use.reach) target.pid = 0;
    return target;
  }
  std::set<Channel> wanted;
  for (const channel::Group& group : target.groups) {
    for (const std::uint32_t handle : group.channels) {
      if (Any(use.reasons) && (ReachOf(use.reasons) == channel::Reach::kAll || Computes(group)))
        wanted.emplace(group.client, handle);
    }
  }
  for (channel::Group& group : target.groups) {
    std::erase_if(group.channels, [&](std::uint32_t handle) {
      const Channel channel{group.client, handle};
      return wanted.contains(channel) != freeze || use.off.contains(channel) == freeze;
    });
  }
  std::erase_if(target.groups, [](const channel::Group& group) { return group.channels.empty(); });
  if (target.groups.empty()) target.pid = 0;
  return target;
}

// Makes the GPU do what the reasons say: at most one thaw, and one freeze of each reach, for all of them together.
Result<void> ChannelServer::Settle(std::uint32_t gpu, std::span<const pid_t> pids) {
  using channel::Reach;
  struct Step {
    bool freeze;
    Reach reach;
  };
  Result<void> done;
  Nanos took = 0;  // the last call
  for (const auto [freeze, reach] : {Step{true, Reach::kAll}, Step{true, Reach::kCompute}, Step{false, Reach::kAll}}) {
    std::vector<channel::Target> targets;
    for (const pid_t pid : pids) {
      Process& process = processes_.at(pid);
      Use& use = process.uses[gpu];
      // Where groups name the channels, they say what a freeze reaches.
      const bool here = !freeze || (control_->KnowsProcesses() ? ReachOf(use.reasons) : Reach::kAll) == reach;
      if (!here) continue;
      channel::Target target = Difference(pid, process, gpu, use, freeze);
      if (target.pid != 0) targets.push_back(std::move(target));
    }
    if (targets.empty()) continue;
    const Nanos begin = MonotonicNow();
    auto result = freeze ? control_->Freeze(gpu, targets, reach) : PutBack(gpu, targets);
    const Nanos end = MonotonicNow();
    calls_.Note(end);
    (freeze ? freeze_times_ : thaw_times_).Note(end - begin);
    took = end - begin;
    if (!result) done = result;
    if (!result) {
      // Some of it may be off: all of it runs again, and each is tried by itself. What cannot be thawed stays noted as
      // off, for RetryThaws.
      if (freeze) (void)control_->Thaw(gpu, targets, Reach::kAll);
      for (const channel::Target& target : targets) {
        if (targets.size() > 1) (void)Settle(gpu, {&target.pid, 1});
      }
      continue;
    }
    for (const channel::Target& target : targets) {
      Use& use = processes_.at(target.pid).uses[gpu];
      if (freeze) use.still_at = 0;  // until now something of it could execute
      use.reach = freeze ? std::optional(reach) : std::nullopt;
      for (const channel::Group& group : target.groups) {
        for (const std::uint32_t handle : group.channels) {
          freeze ? (void)use.off.emplace(group.client, handle) : (void)use.off.erase({group.client, handle});
        }
      }
    }
  }
  const Nanos now = MonotonicNow();
  for (const pid_t pid : pids) {
    Process& process = processes_.at(pid);
    Use& use = process.uses[gpu];
    const auto since = [&](bool holds, Nanos& when) { when = !holds ? 0 : when != 0 ? when : now; };
    since(Any(use.reasons), use.frozen_at);
    if (done && std::exchange(use.traced, use.reasons) != use.reasons)
      trace::Note({.at = now,
                   .took = took,
                   .value = static_cast<std::uint64_t>(use.reasons),
                   .pid = pid,
                   .gpu = gpu,
                   .kind = Any(use.reasons) ? TraceKind::kFrozen : TraceKind::kThawed});
    // Where nothing is known of it, or the freeze failed, nothing can be said.
    const bool known = control_->KnowsProcesses() || !use.off.empty();
    since(done && known && Any(use.reasons) && ReachOf(use.reasons) == Reach::kAll, use.still_at);
    Note(pid, gpu, process, use);
  }
  return done;
}

Result<void> ChannelServer::PutBack(std::uint32_t gpu, std::span<const channel::Target> targets) {
  auto thawed = control_->Thaw(gpu, targets, channel::Reach::kAll);
  std::vector<channel::Target> again;
  for (channel::Target target : targets) {
    std::set<Channel>& before = processes_.at(target.pid).uses[gpu].off_before;
    for (channel::Group& group : target.groups) {
      std::erase_if(group.channels, [&](std::uint32_t handle) { return !before.contains({group.client, handle}); });
    }
    std::erase_if(target.groups, [](const channel::Group& group) { return group.channels.empty(); });
    if (!target.groups.empty()) again.push_back(std::move(target));
  }
  if (!thawed || again.empty()) return thawed;
  thawed = control_->Thaw(gpu, again, channel::Reach::kAll);
  if (!thawed) return thawed;
  for (const channel::Target& target : again) {
    std::set<Channel>& before = processes_.at(target.pid).uses[gpu].off_before;
    for (const channel::Group& group : target.groups) {
      for (const std::uint32_t handle : group.channels) before.erase({group.client, handle});
    }
  }
  return {};
}

// The watchdog thaws what policy froze when this daemon cannot; what an operator froze stays.
void ChannelServer::Note(pid_t pid, std::uint32_t gpu, const Process& process, const Use& use) {
  if (!watchdog_) return;
  const bool off = Any(use.reasons) || !use.off.empty() || use.reach;
  if (off && !Has(use.reasons, FreezeReason::kOperator)) {
    watchdog_->NoteFrozen(pid, gpu, TargetOf(pid, process, gpu));
  } else {
    watchdog_->NoteThawed(pid, gpu);
  }
}

void ChannelServer::Beat() {
  if (!watchdog_ || !watchdog_->Beat()) return;
  log::Error("this daemon did not answer for a while; what was frozen by policy ran meanwhile");
  for (auto& [pid, process] : processes_) {
    for (auto& [gpu, use] : process.uses) {
      // It leaves those frozen that cannot go on.
      if (!watchdog_->Undid(pid, gpu)) continue;
      // It may have failed for some of the channels: RM counts.
      const channel::Target target = TargetOf(pid, process, gpu);
      (void)PutBack(gpu, {&target, 1});
      use.off.clear();
      use.reach.reset();
      use.still_at = 0;
      (void)Settle(gpu, {&pid, 1});
    }
  }
}

// A thaw that the driver refused is tried again until it is done.
void ChannelServer::RetryThaws() {
  if (!Available() || let_go_) return;
  for (auto& [pid, process] : processes_) {
    for (auto& [gpu, use] : process.uses) {
      if (use.waits && use.MayRun()) {
        use.waits = false;
        use.reasons -= FreezeReason::kMove;
      }
      if (!Any(use.reasons) && (!use.off.empty() || use.reach)) (void)Settle(gpu, {&pid, 1});
    }
  }
}

const ChannelServer::Use* ChannelServer::UseOf(pid_t pid, std::uint32_t gpu) const {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return nullptr;
  const auto use = found->second.uses.find(gpu);
  return use == found->second.uses.end() ? nullptr : &use->second;
}

FreezeReason ChannelServer::Reasons(pid_t pid, std::uint32_t gpu) const {
  const Use* use = UseOf(pid, gpu);
  return use ? use->reasons : FreezeReason::kNone;
}

Nanos ChannelServer::FrozenSince(pid_t pid, std::uint32_t gpu) const {
  const Use* use = UseOf(pid, gpu);
  return use ? use->frozen_at : 0;
}

Nanos ChannelServer::StillSince(pid_t pid, std::uint32_t gpu) const {
  const Use* use = UseOf(pid, gpu);
  return use ? use->still_at : 0;
}

Result<void> ChannelServer::SetSlice(std::uint32_t gpu, pid_t pid, Nanos slice) {
  if (!Available()) return Fail(ENOSYS, "channels cannot be steered here: " + why_);
  Process& process = Find(pid);
  if (!control_->KnowsProcesses() && !Verify(pid, process)) return Fail(EACCES, "its channels are not its own");
  calls_.Note(MonotonicNow());
  auto set = control_->SetSlice(gpu, TargetOf(pid, process, gpu), slice);
  if (set)
    trace::Note({.at = MonotonicNow(),
                 .value = static_cast<std::uint64_t>(slice),
                 .pid = pid,
                 .gpu = gpu,
                 .kind = TraceKind::kSlice});
  return set;
}

}  // namespace tessera::server
