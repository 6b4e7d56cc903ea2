#include "server/idle/idle_suspension.h"

#include <algorithm>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {
namespace {

// How often programs are looked at. Of a call the program itself tells.
constexpr Nanos kLookOften = 20 * kMillisecond, kLookEvery = kSecond;

bool Waits(const Process& process) {
  return process.gate.state == GateRecord::State::kWanting || process.page->calls.load(std::memory_order_relaxed) > 0 ||
         process.residence.wanted > 0;
}

bool Rests(const Process& process) {
  return !process.who.guest && process.gate.state == GateRecord::State::kParked &&
         process.page->rests.load(std::memory_order_acquire) != 0 && !Waits(process);
}

// What its pages say of a program that has contexts on some of its GPUs.
struct Seen {
  sched::IdleFacts facts;
  std::uint32_t contexts = 0;
  bool rests = true;

  void Add(const Process& process) {
    const wire::Page& page = *process.page;
    contexts += process.memory.contexts;
    rests &= Rests(process);
    facts.calls |= Waits(process) || page.first_call.load() == wire::FirstCall::kCame;
    facts.done += page.submissions.load(std::memory_order_relaxed) + page.gate_waits.load(std::memory_order_relaxed);
    facts.used += process.memory.reserved - process.memory.Credit();
  }
};

}  // namespace

IdleSuspension::IdleSuspension(EventLoop& loop, const Gpus& gpus, Suspensions& suspensions,
                               const Migrations& migrations, const Config& config)
    : gpus_(gpus), suspensions_(suspensions), migrations_(migrations), timer_(loop, [this] { Look(MonotonicNow()); }) {
  Configure(config, MonotonicNow());
}

void IdleSuspension::Configure(const Config& config, Nanos now) {
  limit_ = config.suspend_idle;
  to_ = config.suspend_idle_to_file ? Suspensions::To::kFile : Suspensions::To::kMemory;
  timer_.Arm(now);
}

void IdleSuspension::Called(pid_t pid, Nanos now) {
  if (const Suspension* suspension = suspensions_.Find(pid); suspension && suspension->ByItself()) timer_.Arm(now);
}

std::map<pid_t, sched::IdleFacts> IdleSuspension::See() const {
  std::map<pid_t, Seen> seen;
  for (const auto& gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) seen[process->pid].Add(*process);
    }
  }
  std::map<pid_t, sched::IdleFacts> programs;
  for (const auto& [pid, each] : seen) {
    sched::IdleFacts& facts = programs[pid] = each.facts;
    const Suspension* suspension = suspensions_.Find(pid);
    facts.away = suspension != nullptr;
    facts.by_itself = suspension && suspension->ByItself();
    facts.returns = suspension && suspension->Returns();
    facts.moves = migrations_.Carries(pid);
    facts.idle = each.rests && each.contexts > 0;
  }
  return programs;
}

void IdleSuspension::Look(Nanos now) {
  const std::map<pid_t, sched::IdleFacts> programs = See();
  std::erase_if(programs_, [&](const auto& each) { return !programs.contains(each.first); });
  for (const auto& [pid, facts] : programs) {
    Known& known = programs_[pid];
    switch (sched::Judge(known.record, facts, limit_, now)) {
      case sched::IdleVerdict::kSuspend:
        Suspend(pid, known, now);
        break;
      case sched::IdleVerdict::kResume:
        suspensions_.Resume(pid, now);
        break;
      case sched::IdleVerdict::kNothing:
        break;
    }
  }
  timer_.Arm(now + (limit_ > 0 ? std::clamp(limit_ / 4, kLookOften, kLookEvery) : kLookEvery));
}

// A refusal is said once.
void IdleSuspension::Suspend(pid_t pid, Known& known, Nanos now) {
  const auto begun = suspensions_.Suspend(pid, now, to_, true);
  if (begun) return known.refusal.clear();
  sched::NoteRefusal(known.record, now);
  if (std::exchange(known.refusal, begun.error().message) != begun.error().message)
    log::Info("process {} is idle, and stays on its GPU: {}", pid, begun.error().Text());
}

}  // namespace tessera::server
