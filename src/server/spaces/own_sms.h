// SMs that vGPUs of a space have for themselves (sm.reserved).
#pragma once

#include <vector>

#include "base/result.h"
#include "server/model/vgpu.h"

namespace tessera::server {

// Gives a vGPU that is about to enter its space its SMs, beside those of the others: `all` are the vGPUs of the
// machine. It keeps those that it has already, if they are free: an earlier daemon gave it these. Either all vGPUs of a
// space have SMs of their own, or none has: a limit is no place, so it would overlap with one. EINVAL: the others of
// the space are of the other kind; ENOSPC: no piece is wide enough.
Result<void> PlaceSms(VGpu& vgpu, const std::vector<VGpu*>& all);

// Finds SMs for a vGPU whose place is about to be `changed`, and sets where they begin: where they began if they are
// free there. The SMs of its programs count as free. EINVAL: they would be its own no longer, or are not now;
// EBUSY: a program cannot move; ENOSPC as above.
Result<void> MoveSms(const VGpu& vgpu, sched::SpacePlace& changed, const std::vector<VGpu*>& all);

// Tells the programs of all vGPUs of the machine where their SMs are, and, where they are `known` to be all, which may
// use all SMs (sm.burst), because no other vGPU of their space has programs.
void TellSms(const std::vector<VGpu*>& all, bool known = true);

// Tells them as long as the daemon runs. Programs leave one after the other when it ends, and come back so when it
// begins: none is alone for that.
class SmOrders {
 public:
  // `now`: on CLOCK_MONOTONIC. To be called when programs or vGPUs have changed, and once a second.
  void Give(const std::vector<VGpu*>& all, Nanos now) {
    if (!ended_) TellSms(all, now >= began_ + kAllBack);
  }
  void End() { ended_ = true; }

 private:
  static constexpr Nanos kAllBack = 3 * kSecond;
  const Nanos began_ = MonotonicNow();
  bool ended_ = false;
};

// The place as pages and messages have it.
wire::SmPlace WirePlaceOf(const sched::SpacePlace& place);

// Whether a program works in other SMs than it was told, because it could not move yet.
bool HasOtherSms(const Process& process);

}  // namespace tessera::server
