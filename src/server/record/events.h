// Events that people and scripts want to know of: vGPUs made, programs that came and went, an operator's acts,
// what went wrong. The last ones are kept. Not what happens many times a second: that is in trace.h. As the log, from
// any thread and with one place for the whole daemon, which the faces read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::server {

enum class EventType {
  kDaemonStarted,
  kConfigReloaded,
  kVGpuCreated,
  kVGpuChanged,
  kVGpuRemoved,
  kVGpuMigrated,  // it is on another GPU, or could not be moved there
  kVGpuFrozen,    // by an operator, as all that is frozen, thawed or evicted here
  kVGpuThawed,
  kProcessStarted,  // it uses a GPU from now on
  kProcessEnded,
  kProcessAdopted,
  kProcessFrozen,
  kProcessThawed,
  kProcessSuspended,  // nothing of it is on a GPU
  kProcessResumed,    // it is back
  kProcessLost,       // the driver could not restore it
  kProcessUnmanaged,  // it uses a GPU, and nobody started it through Tessera
  kMemoryRefused,     // a program asked for more than it may have
  kMemoryEvicted,     // it is being brought out
  kMemoryOnHost,      // a program works on host memory for long
  kMemoryBack,        // it does so no more
  kMemoryStranded,    // no mover can bring back what a program has in host memory
  kGoal,              // how a vGPU stands with its goal is not as before
  kControlChanged,    // a GPU's time is divided in another way
  kSpaceFault,        // a program's fault on the GPU ended all programs of its space
  kSpaceReady,        // the space takes programs again
  kSpaceMode,         // its vGPUs run at once or in turns from now on
  kGpuXid,            // its driver reported an error of a GPU
  kGpuEcc,            // its memory had an error that could not be corrected
  kGpuFailed,         // it is gone until it is reset; also told of each vGPU on it
  kGpuDraining,       // it takes no newcomers, and what can move goes to others
  kGpuUndrained,      // it takes newcomers again
  kWarning,           // a line of the log
  kError,
};

// "vgpu.created" and so on, as docs/reference/events.md has them.
const char* NameOf(EventType type);

struct Event {
  std::uint64_t number = 0;  // from 1, without gaps
  std::int64_t time_us = 0;  // of the wall clock
  EventType type{};
  std::optional<std::uint32_t> gpu;
  std::string vgpu;  // empty: none
  pid_t pid = 0;     // 0: none
  // Users who may see it, beside operators: the vGPU's owner and the process's user.
  std::optional<uid_t> owner, user;
  bool by_operator = false;  // an operator did it: it is not left out
  std::string text;          // for people; one line
};

namespace events {

inline constexpr std::size_t kKept = 2000;

// Gives it number and time. Events of the programs and vGPUs of a user other than root and the daemon's own are left
// out while there are too many of them (EventBudget): then false. Not those of the GPU itself, and of an operator.
bool Note(Event event);

struct Batch {
  std::vector<Event> events;  // in order
  std::uint64_t lost = 0;     // of those after the number: too old to be kept
  std::uint64_t upto = 0;     // all up to this number were looked at
};
// At most `most` of those after `number`; with `reader`, of those that this user may see.
Batch After(std::uint64_t number, std::size_t most, std::optional<uid_t> reader = {});
// The last one's number; 0 before the first.
std::uint64_t Last();
std::uint64_t Errors();  // how many of kError there were

// Adds one to this eventfd at each Note, until it is called with another one; -1 for none.
void WakeOnNote(int event_fd);

}  // namespace events
}  // namespace tessera::server
