#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "channel/control/control.h"
#include "channel/watchdog/watchdog_page.h"

namespace tessera::channel {

// A child process of the daemon that thaws the processes noted here if the daemon hangs or dies, so that none stays
// frozen for ever. Only freezes by policy belong here: an operator's freeze shall stay.
//
// The child shares one page set with the daemon and makes its own Control when it needs one. It ends with the daemon,
// after the last thaw; when the daemon only hung it stays, and the daemon learns from Beat() that its freezes were
// undone. A process whose memory was being moved it thaws when that process says that it could go on (MoveGuard).
class Watchdog {
 public:
  using OpenControl = std::function<Result<std::unique_ptr<Control>>()>;

  // Forks: call it before there are threads. `open` is called in the child only, which has none of this process's files
  // but stderr and `kept` (may be empty): a lock that is held until the last thaw. The next
  // daemon, which waits for the lock, touches it, and thaws those that cannot go on yet. The daemon hangs when it has
  // not called Beat for `timeout`.
  static Result<std::unique_ptr<Watchdog>> Start(OpenControl open, Nanos timeout = 5 * kSecond, UniqueFd kept = {});

  // The child thaws what is still noted, and ends. Waits for that, ten seconds at most for processes that cannot go on.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // Says that the daemon is there; a fifth of the timeout is often enough. True: it hung, and of what was noted some
  // was thawed since the last call. That is over when this returns, so nothing that is frozen from now on is undone by
  // it.
  bool Beat();
  // Whether that was done to this process, since it was last noted. If a thaw failed, some of it may be frozen still.
  bool Undid(pid_t pid, std::uint32_t gpu) const { return notes_.Undone(pid, gpu); }

  // Before the channels are frozen, and again when there are more of them: the daemon may die right after. False if the
  // table is full (WatchdogPage::kSlots): then what was noted before stays noted, and nothing watches over the rest.
  bool NoteFrozen(pid_t pid, std::uint32_t gpu, const Target& target) { return notes_.Note(pid, gpu, target); }
  // The process's word about its memory lies at `offset` of the first page of this file. For as long as it is known to
  // the daemon.
  void HeedMoveGuard(pid_t pid, std::uint32_t gpu, int file, std::uint32_t offset);
  void DropMoveGuard(pid_t pid, std::uint32_t gpu);
  // After they were thawed, or when the process has ended.
  void NoteThawed(pid_t pid, std::uint32_t gpu) { notes_.Erase(pid, gpu); }

  pid_t pid() const { return pid_; }  // of the child

 private:
  Watchdog(WatchdogPage* page, pid_t pid, UniqueFd alive)
      : page_(page), notes_(*page), pid_(pid), alive_(std::move(alive)) {}

  WatchdogPage* const page_;
  FrozenNotes notes_;
  const pid_t pid_;
  bool gone_ = false;  // it was killed, and has been waited for
  UniqueFd alive_;     // the daemon's end of a socket: the child reads its end when the daemon is no more
};

}  // namespace tessera::channel
