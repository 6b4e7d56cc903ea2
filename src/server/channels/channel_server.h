#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "channel/control/control.h"
#include "channel/rm/driver_abi.h"
#include "channel/rm/object_table.h"
#include "channel/watchdog/guard_page.h"
#include "channel/watchdog/watchdog.h"
#include "server/model/freeze_reason.h"
#include "server/record/latency.h"

namespace tessera::server {

// Which channels each GPU process of this machine has, and which processes are frozen, for which reasons. Runs on the
// event loop's thread; its calls to the driver take 0.3 to 0.7 ms there (docs/hardware-log.md), so they are few.
class ChannelServer {
 public:
  enum class Source { kShim, kGuard, kWatch };

  // `control` null: nothing can be steered; `why` says why. The watchdog may be null.
  ChannelServer(std::unique_ptr<channel::Control> control, std::string why, channel::Watchdog* watchdog);

  // The daemon ends: thaws what is frozen by policy. What an operator froze stays as it is, and no call changes any
  // more.
  void LetGo();

  bool Available() const { return control_ && why_.empty(); }
  const std::string& Why() const { return why_; }  // not available; empty if it is
  // The self-test's word: from now on, or no more.
  void SetAvailable(std::string why);
  // Not available until SetAvailable says how it is.
  void BeginTest();
  bool Testing() const { return testing_; }

  // ---- what exists ----

  // A process did something to its objects. What is new of a frozen process is frozen. From the shim it is a claim:
  // believed only if the file in the process is the one that made the client.
  void Observe(pid_t pid, const channel::ObjectEvent& event, Source source, Nanos now);
  // It ended, or is nobody's any more: then what is frozen of it by policy is thawed, because nobody would do that
  // later. What an operator froze stays, and the process is known until it ends.
  void Forget(pid_t pid);
  // Thaws what is not frozen by an operator. It stays known.
  void Release(pid_t pid);
  // Forgets those of them that have ended.
  void Reap();
  // The process is here (again), and says at `offset` of the first page of this file whether it could go on while its
  // memory is moved (base/move_guard.h). When it is forgotten it is thawed as soon as that is so.
  void Guard(pid_t pid, std::uint32_t gpu, int file, std::uint32_t offset);
  // Whether the process's work on the GPU can be steered.
  bool Knows(pid_t pid, std::uint32_t gpu);
  std::vector<channel::Group> Groups(pid_t pid, std::uint32_t gpu) const;
  // Whether that is the GPU which the driver's objects name by this instance.
  bool IsDevice(std::uint32_t gpu, std::uint32_t instance) const {
    return control_ && instance != channel::abi::kNoGpu && control_->DeviceInstance(gpu) == instance;
  }
  std::size_t Channels(pid_t pid) const;
  // Called when Knows may answer otherwise.
  void OnChange(std::function<void(pid_t, Nanos now)> callback) { on_change_ = std::move(callback); }
  // Tells the watchdog that this daemon does not hang. If it did, and everybody was thawed: freezes again. Also done
  // before any other change, which must not take for frozen who is not.
  void Beat();
  // Thaws what should run and could not be thawed when it was asked for.
  void RetryThaws();
  // What an earlier daemon knew of a process, and had frozen for an operator.
  void Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events, bool frozen);
  // For Restore: events that make the same channels.
  std::vector<channel::ObjectEvent> Objects(pid_t pid) const;
  // Thaws channels that an earlier daemon may have frozen, unless they are to be frozen, or must not run yet.
  void ThawLeftOver(std::uint32_t gpu, pid_t pid);

  // ---- what they do ----

  // Several at once cost one call. ENOTSUP if nothing can be steered; then nothing changes.
  Result<void> Freeze(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason);
  Result<void> Thaw(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason);
  FreezeReason Reasons(pid_t pid, std::uint32_t gpu) const;
  Nanos FrozenSince(pid_t pid, std::uint32_t gpu) const;  // when the driver said so; 0: it is not frozen
  // Since when nothing of it that is known here can execute, copies included; 0: something may.
  Nanos StillSince(pid_t pid, std::uint32_t gpu) const;

  Result<void> SetSlice(std::uint32_t gpu, pid_t pid, Nanos slice);

  // ---- figures ----
  channel::CallCounts Counts() const { return control_ ? control_->Counts() : channel::CallCounts(); }
  const Latency& FreezeTimes() const { return freeze_times_; }
  const Latency& ThawTimes() const { return thaw_times_; }
  double CallsPerSecond(Nanos now) const { return calls_.PerSecond(now); }

 private:
  using Channel = std::pair<std::uint32_t, std::uint32_t>;  // client, handle
  struct Use {                                              // of one GPU
    FreezeReason reasons = FreezeReason::kNone;
    FreezeReason traced = FreezeReason::kNone;  // of these, what the trace was told
    Nanos frozen_at = 0;
    Nanos still_at = 0;
    bool fresh = true;  // this daemon never steered it
    // The channels that are off the GPU. RM counts: what was taken off twice needs to be put back twice
    // (docs/hardware-log.md), so nothing is, but what a daemon before this one may have taken off as well.
    std::set<Channel> off, off_before;
    std::optional<channel::Reach> reach;  // of the freeze, where the control finds the channels itself
    std::optional<channel::GuardPage> guard;
    bool waits = false;  // it was released, but could not go on yet
    bool MayRun() const { return !Has(reasons, FreezeReason::kMove) || !guard || guard->Release(); }
  };
  struct Process {
    UniqueFd fd;  // pidfd
    channel::ObjectTable objects;
    bool guarded = false;          // the kernel gate tells all of it: its shim is not asked
    bool claimed = false;          // its shim told something
    bool verified = false;         // nobody else but a trusted source told, or the claims proved true
    bool refused = false;          // a claim was wrong
    std::size_t false_claims = 0;  // of what nobody has
    bool older = false;            // than this daemon: one before it may have frozen it
    std::map<std::uint32_t, Use> uses;
  };

  Process& Find(pid_t pid);
  const Use* UseOf(pid_t pid, std::uint32_t gpu) const;  // null: never frozen
  void TakeOver(std::uint32_t gpu, pid_t pid, Process& process);
  channel::Target TargetOf(pid_t pid, const Process& process, std::uint32_t gpu) const;
  bool Verify(pid_t pid, Process& process);
  void Prune(pid_t pid, std::uint32_t gpu, Use& use) const;
  Result<void> Settle(std::uint32_t gpu, std::span<const pid_t> pids);
  Result<void> PutBack(std::uint32_t gpu, std::span<const channel::Target> targets);
  channel::Target Difference(pid_t pid, const Process& process, std::uint32_t gpu, Use& use, bool freeze) const;
  static bool Alive(const Process& process);
  Result<void> Change(std::uint32_t gpu, std::span<const pid_t> pids, FreezeReason reason, bool frozen);
  void Note(pid_t pid, std::uint32_t gpu, const Process& process, const Use& use);

  std::unique_ptr<channel::Control> control_;
  std::string why_;
  bool testing_ = false;
  bool let_go_ = false;
  channel::Watchdog* watchdog_;
  const std::uint64_t started_;  // this daemon, as ProcessStart tells
  std::map<pid_t, Process> processes_;
  std::set<pid_t> left_;  // forgotten or of an earlier daemon, but frozen by an operator
  std::function<void(pid_t, Nanos)> on_change_;
  Latency freeze_times_, thaw_times_;
  CallRate calls_;
};

}  // namespace tessera::server
