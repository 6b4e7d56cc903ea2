#include "server/gpu/gpu_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/size.h"
#include "server/model/chunks.h"
#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"
#include "server/time/steering_server.h"
#include "server/time/token_server.h"

namespace tessera::server {
namespace {

// Without a sample of work for so long, a program without a shim counts as idle. The samples of one that works have
// gaps.
constexpr Nanos kGuestIdle = 2 * kSecond;

// What of one vGPU may be out while it runs: nothing in the file, and the last chunk of the pool is for what comes back
// from there.
std::uint64_t Settles(const SwapSetup& swap) {
  return swap.file.bytes == 0 ? swap.bytes : Less(swap.bytes, wire::kChunkBytes);
}

}  // namespace

GpuServer::GpuServer(EventLoop& loop, std::uint32_t index, GpuInfo info, std::uint64_t reserve, const Config& config,
                     ChannelServer& channels, SwapSetup swap)
    : loop_(loop),
      index_(index),
      info_(std::move(info)),
      config_(config),
      channels_(channels),
      swap_(std::move(swap)),
      time_(MakeTime(false)),
      memory_(Ledger(index, info_.memory_total, reserve, Settles(swap_), swap_.bytes + swap_.file.bytes),
              info_.context_bytes),
      timer_(loop, [this] { OnTime(); }) {
  if (swap_.bytes > 0)
    residency_ = std::make_unique<ResidencyServer>(loop, index, config.residency, swap_.bytes, swap_.file.bytes, vgpus_,
                                                   ResidencyHost());
}

// ---- memory that is swapped ----

ResidencyServer::Host GpuServer::ResidencyHost() {
  return {
      .capacity = [this] { return RoomCapacity(); },
      .promise = [this](const VGpu& vgpu) -> std::optional<std::uint64_t> {
        if (!vgpu.spec.memory.limit) return std::nullopt;
        std::uint64_t outside = 0;
        for (const Process* process : vgpu.processes) outside += Outside(*process);
        return *vgpu.spec.memory.limit > outside ? *vgpu.spec.memory.limit - outside : 0;
      },
      .hold =
          [this](Process& process, MemoryHold hold) {
            process.freeze.by_residency = hold;
            ApplyHold(process);
          },
      .still =
          [this](const Process& process) {
            if (steers_) {
              channels_.Beat();  // if this daemon hung, who was frozen ran
              return channels_.StillSince(process.pid, index_) != 0 || !channels_.Knows(process.pid, index_);
            }
            // A drained gate is not as safe as a freeze: where that may be had in a moment it is waited for.
            if (channels_.Testing()) return false;
            const bool parked =
                process.gate.state == GateRecord::State::kParked || process.gate.state == GateRecord::State::kWanting;
            return parked && process.page->rests.load(std::memory_order_acquire) != 0;
          },
      .start_mover =
          [this](std::function<void(const wire::MoverMessage*)> on_message) -> Result<std::unique_ptr<Mover>> {
        if (!swap_.slots) {
          auto made = SwapSlots::Make(swap_.bytes);
          if (!made) return std::unexpected(made.error());
          swap_.slots = std::make_unique<SwapSlots>(std::move(*made));
        }
        return StartMover(loop_,
                          {.gpu_uuid = FormatUuid(info_.uuid),
                           .soft = swap_.soft,
                           .floor = swap_.floor,
                           .slots = swap_.slots.get(),
                           .file = swap_.file.file.Get(),
                           .table = swap_.file.table.Get(),
                           .bequeath = swap_.bequeath,
                           .another = std::exchange(mover_started_, true)},
                          std::move(on_message));
      },
  };
}

// What a process has that is not counted as room: contexts, and what nobody but the device knows of. Of one without a
// shim that is all.
std::uint64_t GpuServer::Outside(const Process& process) const {
  const MemoryUse& use = process.memory;
  return use.context_bytes + use.other + (process.who.guest ? use.reserved : 0);
}

std::uint64_t GpuServer::RoomCapacity() const {
  // The mover's context, also while there is no mover: one that finds no place can make none.
  std::uint64_t taken = memory_.Ledger().Reserve() + unmanaged_ + memory_.ContextBytes();
  for (const VGpu* vgpu : vgpus_) {
    if (vgpu->spec.memory.limit) continue;  // within its promise
    for (const Process* process : vgpu->processes) taken += Outside(*process);
  }
  return info_.memory_total > taken ? info_.memory_total - taken : 0;
}

Result<void> GpuServer::Evict(Process& process, std::uint64_t keep) {
  if (!residency_) return Fail(ENOSYS, "memory is not swapped here", "set swap.size in the daemon's configuration");
  const std::uint64_t resident = ResidentBytes(process);
  return residency_->Push(process, std::min(ResidencyServer::Movable(process), resident > keep ? resident - keep : 0));
}

Result<void> GpuServer::Evict(VGpu& vgpu, std::uint64_t keep) {
  if (!residency_) return Fail(ENOSYS, "memory is not swapped here", "set swap.size in the daemon's configuration");
  for (Process* process : vgpu.processes) {
    const std::uint64_t stays = std::min(keep, ResidentBytes(*process));
    keep -= stays;
    // One of which nothing can be moved is not in the way of the others.
    if (vgpu.processes.size() > 1 && ResidencyServer::Movable(*process) == 0) continue;
    if (auto pushed = Evict(*process, stays); !pushed) return pushed;
  }
  return {};
}

std::uint64_t GpuServer::ResidentBytes(const Process& process) const {
  if (!residency_) return process.memory.Current();
  return ResidencyServer::Taken(process) + Outside(process);
}

std::uint64_t GpuServer::PinnedBytes(const Process& process) const {
  if (!residency_) return process.memory.Current();
  return ResidencyServer::Pinned(process) + Outside(process);
}

// The timer may come early, which is nobody's delay.
void GpuServer::OnTime() {
  const Nanos now = MonotonicNow(), due = time_->NextDeadline();
  if (due <= now) lateness_.Note(now - due);
  AdvanceTo(now);
}

void GpuServer::AdvanceTo(Nanos now) {
  time_->Advance(now);
  SetTimer();
  NoteStandings(now);
}

std::unique_ptr<TimeServer> GpuServer::MakeTime(bool steers) const {
  if (steers) return std::make_unique<SteeringServer>(index_, config_.steering, channels_);
  return std::make_unique<TokenServer>(config_.sched, config_.in_flight);
}

// The scheduler's next deadline. While a vGPU that goes before those that run may become active any moment, the loop
// does not sleep: waking up would cost as much as the freeze itself.
void GpuServer::SetTimer() {
  timer_.Arm(time_->NextDeadline());
  if (time_->Urgent()) loop_.SpinUntil(MonotonicNow() + config_.priority_spin);
}

// ---- channels or gates ----

// Whether there is a process that uses the GPU and does not obey; empty if there is none.
std::string GpuServer::WhyUnsteerable() const {
  for (const VGpu* vgpu : vgpus_) {
    for (const Process* process : vgpu->processes) {
      if (process->freeze.evades)
        return fmt::format("process {} ({}) went on while its channels were frozen", process->pid,
                           process->who.program);
      if (process->work.worked && !channels_.Knows(process->pid, index_))
        return fmt::format("the channels of process {} ({}) are not known", process->pid, process->who.program);
    }
  }
  return {};
}

// A freeze is believed because it is seen: work that was submitted after it must not have ended as long as it lasts.
// Seen to go on twice, because the news of new channels may be under way, and because there are submissions that need
// no channel (of nothing, of host functions). The process says itself what has ended, so that whoever lies here gets no
// more than whoever hides a channel: tokens.
void GpuServer::CheckFreeze(Process& process) {
  const Nanos since = channels_.StillSince(process.pid, index_);
  const Nanos reached = process.page->reached_ns.load(std::memory_order_relaxed);
  const bool went_on = since != 0 && reached > since && reached != process.freeze.reached_seen;
  process.freeze.reached_seen = reached;
  if (!std::exchange(process.freeze.suspect, went_on) || !went_on || process.freeze.evades) return;
  process.freeze.evades = true;
  log::Error("GPU {}: process {} ({}) went on while its channels were frozen; not all of them are known", index_,
             process.pid, process.who.program);
}

void GpuServer::ChooseControl() {
  why_gate_ = channels_.Why().empty() ? WhyUnsteerable() : channels_.Why();
  if (why_gate_.empty() != steers_) SwitchTo(why_gate_.empty());
}

void GpuServer::SwitchTo(bool steers) {
  const Nanos now = MonotonicNow();
  std::map<const Process*, GateRecord::State> before;
  for (VGpu* vgpu : vgpus_) {
    vgpu->usage_before = UsageOf(*vgpu, now);
    for (const Process* process : vgpu->processes) before[process] = process->gate.state;
  }
  time_->Abandon(now);
  steers_ = steers;
  time_ = MakeTime(steers);
  for (VGpu* vgpu : vgpus_) {
    if (vgpu->removed) continue;
    (void)time_->Add(vgpu->id, vgpu->spec.compute, now);  // it was admitted once
    for (Process* process : vgpu->processes) {
      time_->Join(vgpu->id, process->gate, now);
      // A free gate lets work that was on its way go on without a word. At a closed one it drains, and says so.
      const bool works =
          before[process] == GateRecord::State::kRunning || before[process] == GateRecord::State::kDraining;
      if (process->who.guest || works) {
        time_->Wants(process->gate, now, false);
      } else if (steers && before[process] == GateRecord::State::kWanting) {
        time_->Wants(process->gate, now, true);  // to it the free gate is an answer, so it says nothing more
      }
    }
  }
  SetTimer();
  const std::string by = steers ? "the channels' slices" : "tokens: " + why_gate_;
  log::Info("GPU {}: time is shared by {}", index_, by);
  events::Note({.type = EventType::kControlChanged, .gpu = index_, .text = "by " + by});
}

void GpuServer::ChannelsChanged(pid_t pid) {
  for (const VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      if (process->pid != pid) continue;
      time_->ChannelsChanged(process->gate, MonotonicNow());
      // A context's end: what it has no channels for it does not do. When it works again we see what it has then.
      if (!channels_.Knows(pid, index_)) process->work.worked = false;
    }
  }
  ChooseControl();
  SetTimer();
}

// ---- freezing by an operator ----

void GpuServer::Freeze(Process& process, bool frozen) {
  process.freeze.by_operator = frozen;
  ApplyHold(process);
}

void GpuServer::Freeze(VGpu& vgpu, bool frozen) {
  if (frozen && !vgpu.spec.frozen) ++vgpu.freezes;
  vgpu.spec.frozen = frozen;
  for (Process* process : vgpu.processes) ApplyHold(*process);
}

void GpuServer::ApplyHolds() {
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      if (process->gate.held) ApplyHold(*process);
    }
  }
}

void GpuServer::ApplyHold(Process& process) {
  const FreezeReason wanted = process.WantedFreezes();
  if (channels_.Available()) {
    for (const FreezeReason reason : {FreezeReason::kOperator, FreezeReason::kMemory, FreezeReason::kMove}) {
      const auto done = Has(wanted, reason) ? channels_.Freeze(index_, {&process.pid, 1}, reason)
                                            : channels_.Thaw(index_, {&process.pid, 1}, reason);
      if (!done) log::Error("process {}: {}", process.pid, done.error().Text());
    }
  }
  const Nanos now = MonotonicNow();
  if (process.gate.held != process.MustStand()) time_->Hold(process.gate, process.MustStand(), now);
  AfterEvent(*process.vgpu, now);
}

// ---- vGPUs ----

Result<void> GpuServer::Add(VGpu& vgpu) {
  if (auto opened = memory_.Open(vgpu.id, vgpu.spec.memory); !opened) return opened;
  if (auto added = time_->Add(vgpu.id, vgpu.spec.compute, MonotonicNow()); !added) {
    memory_.Close(vgpu.id);
    return added;
  }
  vgpus_.push_back(&vgpu);
  trace::NameVGpu(vgpu.id, vgpu.spec.name);
  if (residency_) residency_->Add(vgpu);
  return {};
}

Result<void> GpuServer::Resize(VGpu& vgpu, const MemoryTerms& memory, const sched::Shares& compute) {
  const MemoryTerms before = vgpu.spec.memory;
  if (auto changed = memory_.Change(vgpu.id, memory); !changed) return changed;
  const Nanos now = MonotonicNow();
  if (auto updated = time_->Update(vgpu.id, compute, now); !updated) {
    (void)memory_.Change(vgpu.id, before);  // cannot fail: it fitted a moment ago
    return updated;
  }
  vgpu.spec.memory = memory;
  vgpu.spec.compute = compute;
  if (residency_) residency_->Update(vgpu);
  for (Process* process : vgpu.processes) {
    if (process->freeze.overdrawn) CheckMemory(*process, true);
  }
  if (NeedsWatching() && on_contexts_changed_) on_contexts_changed_();
  AfterEvent(vgpu, now);
  return {};
}

void GpuServer::Remove(VGpu& vgpu) {
  time_->Remove(vgpu.id, MonotonicNow());
  SetTimer();
  (void)memory_.Change(vgpu.id, {.limit = {}, .max = 0});  // promises less: cannot fail
}

void GpuServer::Forget(VGpu& vgpu) {
  memory_.Close(vgpu.id);
  std::erase(vgpus_, &vgpu);
  if (residency_) residency_->Remove(vgpu);
}

void GpuServer::Join(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts) {
  process.vgpu = &vgpu;
  process.freeze.overdrawn = Has(channels_.Reasons(process.pid, index_), FreezeReason::kMemory);
  vgpu.processes.push_back(&process);
  process.gate.waits = &vgpu.waits;
  trace::NameProgram(process.pid, process.who.program);
  time_->Join(vgpu.id, process.gate, MonotonicNow());
  memory_.Join(vgpu.id, process.memory, bytes, contexts);
  events::Note({.type = EventType::kProcessStarted,
                .gpu = index_,
                .vgpu = vgpu.spec.name,
                .pid = process.pid,
                .text = process.who.program});
  if (on_join_) on_join_(process);
  if (residency_ && !process.who.guest) {
    channels_.Guard(process.pid, index_, process.page.Fd(), offsetof(wire::Page, guard));
    residency_->Join(process, bytes);
  }
  // What it is frozen for may be of another vGPU, or of before.
  if (process.FrozenByOperator() || process.freeze.overdrawn || channels_.StillSince(process.pid, index_) != 0)
    ApplyHold(process);
  NoteActivity();
  if (process.who.guest && on_contexts_changed_) on_contexts_changed_();
}

void GpuServer::Leave(Process& process) {
  const Nanos now = MonotonicNow();
  time_->Leave(process.gate, now);
  process.gate.waits = nullptr;
  memory_.Leave(process.memory);
  std::erase(process.vgpu->processes, &process);
  if (residency_) residency_->Leave(process);
  events::Note({.type = EventType::kProcessEnded,
                .gpu = index_,
                .vgpu = process.vgpu->spec.name,
                .pid = process.pid,
                .text = process.who.program});
  AfterEvent(*process.vgpu, now);
  ChooseControl();
}

void GpuServer::Wants(Process& process, bool waits) {
  const Nanos now = MonotonicNow();
  time_->Wants(process.gate, now, waits);
  if (!process.work.worked && !process.who.guest) {
    process.work.worked = true;
    ChooseControl();
  }
  AfterEvent(*process.vgpu, now);
}

void GpuServer::Idle(Process& process, Nanos since) {
  const Nanos now = MonotonicNow();
  time_->Idle(process.gate, now, since);
  AfterEvent(*process.vgpu, now);
}

void GpuServer::Released(Process& process, Nanos drained_at, std::uint32_t epoch) {
  const Nanos now = MonotonicNow();
  time_->Released(process.gate, now, drained_at, epoch);
  AfterEvent(*process.vgpu, now);
}

std::uint64_t GpuServer::Reserve(Process& process, std::uint64_t bytes) {
  NoteActivity();
  const std::uint64_t charged = memory_.Reserve(process.memory, bytes);
  TraceMemory(*process.vgpu, MonotonicNow());
  if (charged < bytes) NoteRefusal(process, bytes);
  return charged;
}

void GpuServer::Return(Process& process, std::uint64_t bytes) {
  NoteActivity();
  memory_.Return(process.memory, bytes);
  TraceMemory(*process.vgpu, MonotonicNow());
}

std::uint64_t GpuServer::AddContext(Process& process) {
  if (on_contexts_changed_) on_contexts_changed_();
  return memory_.AddContext(process.memory);
}

void GpuServer::DropContext(Process& process) {
  if (on_contexts_changed_) on_contexts_changed_();
  memory_.DropContext(process.memory);
  // Without a context it has no channels, and nothing to do on the GPU.
  if (process.memory.contexts == 0) process.work.worked = false;
}

void GpuServer::Collect(const VGpu& vgpu, std::uint64_t bytes) { memory_.Collect(vgpu.id, bytes); }

bool GpuServer::Hold(Process& process, std::uint64_t bytes) {
  NoteActivity();
  const bool held = memory_.Hold(process.memory, bytes);
  if (!held) NoteRefusal(process, bytes);
  return held;
}

void GpuServer::HoldAnyway(Process& process, std::uint64_t bytes) {
  NoteActivity();
  memory_.HoldAnyway(process.memory, bytes);
}

void GpuServer::NoteMeasured(Process& process, std::uint64_t bytes) {
  MemoryServer::BeginMeasurement(process.memory);
  memory_.Reconcile(process.memory, bytes);
}

void GpuServer::BeginMeasurement() {
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) MemoryServer::BeginMeasurement(process->memory);
  }
}

void GpuServer::Reconcile(const DeviceUse& measured) {
  std::uint64_t managed = 0;
  const auto unmanaged_before = std::exchange(unmanaged_by_process_, measured.by_process);
  if (residency_) {  // the mover is nobody's program
    const auto mover = unmanaged_by_process_.extract(residency_->MoverPid());
    if (mover) managed += mover.mapped();
  }
  const Nanos now = MonotonicNow();
  const bool watches = NeedsWatching();
  samples_ = measured.worked.has_value();
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      const auto found = measured.by_process.find(process->pid);
      const bool listed = found != measured.by_process.end();
      if (listed) {
        managed += found->second;
        unmanaged_by_process_.erase(process->pid);
        memory_.Reconcile(process->memory, found->second);
      }
      CheckFreeze(*process);
      if (process->who.guarded) CheckMemory(*process, listed);
      // Nobody looks often where nobody is kept waiting: there it is active, so that its limit holds at any time.
      if (process->who.guest && channels_.Knows(process->pid, index_))
        CheckWork(*process, !watches || !samples_ || measured.worked->contains(process->pid), now);
    }
  }
  unmanaged_ = measured.used > managed ? measured.used - managed : 0;
  for (const auto& [pid, bytes] : unmanaged_by_process_) {
    if (!unmanaged_before.contains(pid))
      events::Note(
          {.type = EventType::kProcessUnmanaged, .gpu = index_, .pid = pid, .text = "it has " + FormatSize(bytes)});
  }
  ChooseControl();
  SetTimer();
}

// A thread that races the kernel gate may get memory past it. That is charged like all memory, and where the vGPU has
// too much by it, the program stops until that is no longer so: an operator raises memory.max, or ends it.
void GpuServer::CheckMemory(Process& process, bool listed) {
  // Twice in a row: what is freed while the device is asked is still in its answer. Whom it does not list has nothing.
  process.work.excess_seen = listed && memory_.Exceeds(process.memory) ? process.work.excess_seen + 1 : 0;
  // A limit that was lowered below what the gate granted accuses nobody, and acquits nobody.
  const bool may_begin = process.freeze.overdrawn || !memory_.GrantedTooMuch(process.vgpu->id);
  const bool overdrawn = process.work.excess_seen >= 2 && may_begin;
  if (overdrawn == process.freeze.overdrawn) return;
  process.freeze.overdrawn = overdrawn;
  if (overdrawn) {
    log::Error("process {} ({}) has {}, more than it got through the kernel gate, and so vGPU {} more than its {}; {}",
               process.pid, process.who.program, FormatSize(process.memory.measured.value_or(0)),
               process.vgpu->spec.name, FormatSize(memory_.FiguresOf(process.vgpu->id).max),
               channels_.Available() ? "it is frozen until memory.max allows that, or it ends"
                                     : "it cannot be frozen: " + channels_.Why());
  }
  ApplyHold(process);
}

// A guest tells nobody when it has work. The device's samples do, a second or two late.
void GpuServer::CheckWork(Process& process, bool worked, Nanos now) {
  const bool frozen = Any(channels_.Reasons(process.pid, index_));
  if (worked || frozen || process.work.seen_at == 0) {
    process.work.seen_at = now;
    // One that is frozen may have work: nobody can know.
    if ((worked || frozen) && process.gate.state == GateRecord::State::kParked) time_->Wants(process.gate, now, false);
  } else if (process.gate.state == GateRecord::State::kRunning && now - process.work.seen_at > kGuestIdle) {
    time_->Idle(process.gate, now, process.work.seen_at);
  }
}

bool GpuServer::NeedsWatching() const {
  std::uint32_t highest_guest = UINT32_MAX, lowest = 0;
  for (const VGpu* vgpu : vgpus_) {
    for (const Process* process : vgpu->processes) {
      if (process->freeze.suspect && !process->freeze.evades) return true;
      if (vgpu->removed) continue;
      if (process->who.guest) highest_guest = std::min(highest_guest, vgpu->spec.compute.priority);
      lowest = std::max(lowest, vgpu->spec.compute.priority);
    }
  }
  return steers_ && samples_ && highest_guest < lowest;
}

double GpuServer::ComputePercent(const VGpu& vgpu, Nanos now) const {
  return vgpu.busy.Percent(now, UsageOf(vgpu, now).busy);
}

sched::Usage GpuServer::UsageOf(const VGpu& vgpu, Nanos now) const {
  sched::Usage usage = time_->UsageOf(vgpu.id, now);
  usage.busy += vgpu.usage_before.busy;
  usage.waited += vgpu.usage_before.waited;
  return usage;
}

// After every event that may have changed who runs.
void GpuServer::AfterEvent(VGpu& vgpu, Nanos now) {
  SetTimer();
  NoteStandings(now);
  if (!vgpu.removed && vgpu.busy.Due(now)) vgpu.busy.Note(now, UsageOf(vgpu, now).busy);
  if (residency_) residency_->Work();
  NoteActivity();
}

void GpuServer::NoteActivity() {
  if (on_activity_) on_activity_();
}

}  // namespace tessera::server
