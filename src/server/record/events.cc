#include "server/record/events.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/record/event_budget.h"

namespace tessera::server {
namespace {

// Of a text: messages quote what programs say, which may be long.
constexpr std::size_t kMostText = 500;

struct Kept {
  Mutex mutex;
  std::deque<Event> events TESSERA_GUARDED_BY(mutex);
  EventBudget budget TESSERA_GUARDED_BY(mutex);
  std::uint64_t last TESSERA_GUARDED_BY(mutex) = 0;
  std::uint64_t errors TESSERA_GUARDED_BY(mutex) = 0;
  int wake_fd TESSERA_GUARDED_BY(mutex) = -1;
};

// Never destroyed: threads may note something while the daemon exits.
Kept& All() {
  static auto* const kept = new Kept;
  return *kept;
}

// GpuHealth bounds how often they are told.
bool OfGpu(EventType type) {
  return type == EventType::kGpuXid || type == EventType::kGpuEcc || type == EventType::kGpuFailed;
}

void Keep(Kept& all, Event event) TESSERA_REQUIRES(all.mutex) {
  using namespace std::chrono;
  event.time_us = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  if (event.text.size() > kMostText) event.text.resize(kMostText);
  event.number = ++all.last;
  if (event.type == EventType::kError) ++all.errors;
  if (all.events.size() == events::kKept) all.events.pop_front();
  all.events.push_back(std::move(event));
}

}  // namespace

const char* NameOf(EventType type) {
  switch (type) {
    case EventType::kDaemonStarted:
      return "daemon.started";
    case EventType::kConfigReloaded:
      return "config.reloaded";
    case EventType::kVGpuCreated:
      return "vgpu.created";
    case EventType::kVGpuChanged:
      return "vgpu.changed";
    case EventType::kVGpuRemoved:
      return "vgpu.removed";
    case EventType::kVGpuMigrated:
      return "vgpu.migrated";
    case EventType::kVGpuFrozen:
      return "vgpu.frozen";
    case EventType::kVGpuThawed:
      return "vgpu.thawed";
    case EventType::kProcessStarted:
      return "process.started";
    case EventType::kProcessEnded:
      return "process.ended";
    case EventType::kProcessAdopted:
      return "process.adopted";
    case EventType::kProcessFrozen:
      return "process.frozen";
    case EventType::kProcessThawed:
      return "process.thawed";
    case EventType::kProcessSuspended:
      return "process.suspended";
    case EventType::kProcessResumed:
      return "process.resumed";
    case EventType::kProcessLost:
      return "process.lost";
    case EventType::kProcessUnmanaged:
      return "process.unmanaged";
    case EventType::kMemoryRefused:
      return "memory.refused";
    case EventType::kMemoryEvicted:
      return "memory.evicted";
    case EventType::kMemoryOnHost:
      return "memory.on_host";
    case EventType::kMemoryBack:
      return "memory.back";
    case EventType::kMemoryStranded:
      return "memory.stranded";
    case EventType::kGoal:
      return "goal";
    case EventType::kControlChanged:
      return "gpu.control";
    case EventType::kSpaceFault:
      return "space.fault";
    case EventType::kSpaceReady:
      return "space.ready";
    case EventType::kSpaceMode:
      return "space.mode";
    case EventType::kGpuXid:
      return "gpu.xid";
    case EventType::kGpuEcc:
      return "gpu.ecc";
    case EventType::kGpuFailed:
      return "gpu.failed";
    case EventType::kGpuDraining:
      return "gpu.draining";
    case EventType::kGpuUndrained:
      return "gpu.undrained";
    case EventType::kWarning:
      return "daemon.warning";
    case EventType::kError:
      break;
  }
  return "daemon.error";
}

namespace events {

bool Note(Event event) {
  using Verdict = EventBudget::Verdict;
  Kept& all = All();
  MutexLock lock(all.mutex);
  const std::optional<uid_t> by = event.user ? event.user : event.owner;
  // A user's own daemon has that user's events alone: they push nobody's out.
  const bool at_will = by && *by != 0 && *by != geteuid() && !event.by_operator && !OfGpu(event.type);
  const Verdict verdict = at_will ? all.budget.Ask(*by, MonotonicNow()) : Verdict::kTell;
  if (verdict == Verdict::kLeaveOut) return false;
  Keep(all, std::move(event));
  if (verdict == Verdict::kTellLast) {
    std::string text = "the programs of user " + std::to_string(*by) +
                       " cause too many events: further ones are left out until there are fewer";
    Keep(all, {.type = EventType::kWarning, .user = by, .text = std::move(text)});
  }
  if (all.wake_fd >= 0) eventfd_write(all.wake_fd, 1);
  return true;
}

Batch After(std::uint64_t number, std::size_t most, std::optional<uid_t> reader) {
  Kept& all = All();
  MutexLock lock(all.mutex);
  Batch batch;
  const std::uint64_t before_first = all.last - all.events.size();
  if (number < before_first) batch.lost = before_first - number;
  batch.upto = std::clamp(number, before_first, all.last);
  for (auto event = all.events.begin() + static_cast<std::ptrdiff_t>(batch.upto - before_first);
       event != all.events.end() && batch.events.size() < most; ++event) {
    batch.upto = event->number;
    if (!reader || event->owner == reader || event->user == reader) batch.events.push_back(*event);
  }
  return batch;
}

std::uint64_t Last() {
  Kept& all = All();
  MutexLock lock(all.mutex);
  return all.last;
}

std::uint64_t Errors() {
  Kept& all = All();
  MutexLock lock(all.mutex);
  return all.errors;
}

void WakeOnNote(int event_fd) {
  Kept& all = All();
  MutexLock lock(all.mutex);
  all.wake_fd = event_fd;
}

}  // namespace events
}  // namespace tessera::server
