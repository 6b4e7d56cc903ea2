#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "channel/control/freeze_account.h"
#include "channel/watchdog/move_guard_page.h"
#include "channel/watchdog/watchdog.h"
#include "server/channels/availability.h"
#include "server/channels/channel_table.h"
#include "server/channels/driver_calls.h"
#include "server/model/freeze_reason.h"

namespace tessera::server {

// Knows which processes are frozen, for which reasons, and makes the GPUs and the watchdog follow. Runs on the event
// loop's thread; its calls to the driver take 0.3 to 0.7 ms there (docs/hardware-log.md), so they are few.
//
// An MPS server that policy freezes goes on while a client makes its context: where its channels were taken off and put
// back meanwhile, the client was seen to wait for ever (docs/hardware-log.md, 2026-11-25).
class Freezer {
 public:
  struct Status {
    FreezeReason reasons = FreezeReason::kNone;
    Nanos frozen_since = 0;  // when the driver said so; 0: it is not frozen
    Nanos still_since = 0;   // since when nothing of it that is known can execute, copies included; 0: something may
  };

  // `availability` says where channels can be steered. It changes, and outlives the object as the rest does. The
  // watchdog may be null, and so may the control, as long as nothing is available.
  Freezer(channel::Control* control, const Availability& availability, channel::Watchdog* watchdog, ChannelTable& table,
          DriverCalls& calls);

  // Several processes at once cost one call. ENOSYS if channels cannot be steered; then nothing changes.
  Result<void> Freeze(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason) {
    return Change(gpu, pids, reason, true);
  }
  Result<void> Thaw(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason) {
    return Change(gpu, pids, reason, false);
  }
  Status StatusOf(pid_t pid, std::uint32_t gpu) const;

  // The process is here (again). It says at `offset` of the first page of this file whether it could go on while its
  // memory is moved (base/move_guard.h): when it is forgotten it is thawed as soon as that is so.
  void HeedMoveGuard(pid_t pid, std::uint32_t gpu, int file, std::uint32_t offset);

  // The process made channels, or freed some: new ones of a frozen process are frozen.
  void ChannelsChanged(pid_t pid, bool freed);
  // An earlier daemon had frozen these channels for an operator.
  void TakeOver(pid_t pid, const channel::ObjectTable& frozen);
  // Thaws channels that an earlier daemon may have frozen, unless they are to be frozen, or must not run yet.
  void ThawLeftOver(std::uint32_t gpu, pid_t pid);

  // Thaws what is not frozen by an operator, or for memory that it must not have.
  void Release(pid_t pid);
  // The same, and forgets the process if nothing of it is frozen any more: false if something is.
  bool Forget(pid_t pid);

  // The client of an MPS server is about to be none, and may go on: what was taken off with the server is put back.
  void ReleaseClient(pid_t server, pid_t client);

  // Tells the watchdog that this daemon does not hang. If it did, and everybody was thawed: freezes again. Also done
  // before any change, which must not take a process for frozen that is not.
  void Beat();
  // Thaws processes that should run and could not be thawed when that was asked for; freezes those that were spared for
  // a start which is over.
  void CatchUp();
  // The daemon ends: thaws what is not frozen by an operator. No call changes anything any more.
  void LetGo();

 private:
  struct Use {  // of one GPU by one process
    FreezeReason reasons = FreezeReason::kNone;
    FreezeReason traced = FreezeReason::kNone;  // of these, what the trace was told
    Nanos frozen_at = 0;
    Nanos still_at = 0;
    bool fresh = true;  // this daemon never steered it
    std::optional<channel::MoveGuardPage> guard;
    bool waits = false;   // it was released, but could not go on yet
    bool spared = false;  // it goes on, because a client starts
  };
  using Uses = std::map<std::uint32_t, Use>;  // of one process, by GPU

  bool Available(std::uint32_t gpu) const { return control_ && availability_.On(gpu); }
  Result<void> Change(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason, bool frozen);
  Result<void> Settle(std::uint32_t gpu, std::span<const pid_t> pids);
  void Settled(std::uint32_t gpu, pid_t pid, const channel::FreezeAccount::Outcome& outcome, Nanos now);
  void TakeOverLeftOver(std::uint32_t gpu, pid_t pid);
  void Note(std::uint32_t gpu, pid_t pid, const Use& use);
  const Use* Find(pid_t pid, std::uint32_t gpu) const;  // null: never frozen
  static bool MayRun(const Uses& uses, const Use& use);
  std::optional<channel::Reach> ReachNow(pid_t pid, Use& use) const;
  bool Safe(pid_t pid) const;

  channel::Control* const control_;
  const Availability& availability_;
  channel::Watchdog* const watchdog_;
  ChannelTable& table_;
  DriverCalls& calls_;
  std::unique_ptr<channel::FreezeAccount> account_;  // none: there is no control
  bool let_go_ = false;
  std::map<pid_t, Uses> uses_;
};

}  // namespace tessera::server
