// The page that the daemon and its watchdog share: an anonymous mapping, inherited by fork(2), that outlives either of
// them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "channel/control/control.h"

namespace tessera::channel {

// The channels of one process on one GPU, or 64 of them: a process with more takes several slots. The daemon writes a
// slot while it is not in use, and then makes its generation odd. So a slot in use is whole, even if the daemon dies
// while it writes. A reader that finds the generation unchanged after reading has read one state of the slot.
struct WatchdogSlot {
  static constexpr unsigned kMostChannels = 64;
  std::atomic<std::uint32_t> generation;  // odd: in use
  std::atomic<pid_t> pid;
  std::atomic<std::uint32_t> gpu;
  std::atomic<std::uint32_t> channels;
  std::atomic<std::uint32_t> undone;  // the generation that the watchdog thawed, or tried to
  std::atomic<std::uint32_t> client[kMostChannels], channel[kMostChannels];
};

struct WatchdogPage {
  static constexpr unsigned kSlots = 512;
  std::atomic<Nanos> heartbeat;        // MonotonicNow() of the daemon
  std::atomic<std::uint32_t> undoing;  // the watchdog undoes the freezes of a daemon that hangs
  std::atomic<std::uint32_t> tripped;  // it has done so
  WatchdogSlot slots[kSlots];
};
static_assert(std::atomic<Nanos>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<pid_t>::is_always_lock_free);

// The watchdog's side: what the daemon left frozen, one target for a process and GPU, without slices.
std::map<std::pair<pid_t, std::uint32_t>, Target> ReadFrozen(const WatchdogPage& page);
// Notes, while the daemon hangs, that this process's channels were thawed, or that a thaw failed halfway.
void MarkUndone(WatchdogPage& page, pid_t pid, std::uint32_t gpu);

// The daemon's side: which slots are whose. One thread at a time.
class FrozenNotes {
 public:
  explicit FrozenNotes(WatchdogPage& page);

  // Notes the frozen channels of a process on a GPU, instead of those noted before. False, and nothing changes, if
  // there is no room.
  bool Note(pid_t pid, std::uint32_t gpu, const Target& target);
  void Erase(pid_t pid, std::uint32_t gpu);
  // Whether the watchdog marked as undone what was noted last of a process.
  bool Undone(pid_t pid, std::uint32_t gpu) const;

 private:
  void Release(const std::vector<unsigned>& slots);

  WatchdogPage& page_;
  std::map<std::pair<pid_t, std::uint32_t>, std::vector<unsigned>> used_;
  std::vector<unsigned> free_;
};

}  // namespace tessera::channel
