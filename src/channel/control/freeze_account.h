#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "channel/control/control.h"

namespace tessera::channel {

// An account of the channels that a Control has taken off the GPUs, by which it makes the fewest calls and none twice.
//
// RM counts disables (NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS): a channel that was taken off twice needs to be put back
// twice (docs/hardware-log.md), and no request tells whether it is off. So no channel is taken off that the account has
// as off; of channels that an earlier daemon may have taken off as well, the account knows that, and puts them back
// twice. One thread at a time.
class FreezeAccount {
 public:
  // The state that is wanted for one process on one GPU.
  struct Wish {
    Target target;               // all of its channels
    std::optional<Reach> reach;  // of the freeze; none: all of it may run
  };
  // The result of a wish.
  struct Outcome {
    Result<void> done;
    Nanos took = 0;      // of the last call for it; 0: none was needed
    bool froze = false;  // something that could execute until now was taken off
  };
  // Told of every freeze and thaw: how long it took, and when it ended.
  using OnCall = std::function<void(bool freeze, Nanos took, Nanos ended)>;

  // The control outlives the account.
  FreezeAccount(Control& control, OnCall on_call) : control_(control), on_call_(std::move(on_call)) {}

  // Makes the GPU do as is wished, with at most one thaw and one freeze of each reach for all wishes together. If a
  // call fails, each process is tried by itself; channels that could not be thawed stay noted as off, for the next
  // time. The outcomes have the order of the wishes. So have thaws; of one process each group comes first in its turn,
  // because the GPU begins with what is put back first, and may not get to the rest before the next freeze.
  std::vector<Outcome> Settle(std::uint32_t gpu, std::span<const Wish> wishes);

  // Whether something of the process is off the GPU.
  bool AnyOff(pid_t pid, std::uint32_t gpu) const;

  // Forgets channels that are not among these groups: they exist no more, and their handles may come back as others'.
  void KeepOnly(pid_t pid, std::uint32_t gpu, const std::vector<Group>& groups);
  // An earlier daemon took these channels off.
  void TakeOver(std::uint32_t gpu, const Target& target);
  // An earlier daemon may have taken these channels off, and they must not run: thaws put them back twice.
  void MayBeOff(std::uint32_t gpu, const Target& target);
  // Somebody else thawed the process, perhaps not all of it: puts all of it back and begins anew.
  void Undone(std::uint32_t gpu, const Target& target);
  void Forget(pid_t pid) { processes_.erase(pid); }

 private:
  using Channel = std::pair<std::uint32_t, std::uint32_t>;  // client, handle
  struct Entry {
    std::set<Channel> off;
    std::set<Channel> off_before;  // by an earlier daemon, perhaps
    std::optional<Reach> reach;    // of the freeze, where the control finds the channels by itself
  };

  Entry& At(pid_t pid, std::uint32_t gpu) { return processes_[pid][gpu]; }
  Reach CallReach(Reach wished) const;
  std::optional<Target> Difference(std::uint32_t gpu, const Wish& wish, bool freeze);
  Result<void> PutBack(std::uint32_t gpu, std::span<const Target> targets);
  void Note(std::uint32_t gpu, const Target& target, bool freeze, Reach reach);

  Control& control_;
  const OnCall on_call_;
  std::size_t thaws_ = 0;
  std::map<pid_t, std::map<std::uint32_t, Entry>> processes_;  // by GPU
};

}  // namespace tessera::channel
