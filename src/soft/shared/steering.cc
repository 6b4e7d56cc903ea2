#include "soft/shared/steering.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>

#include "soft/shared/arbiter.h"
#include "soft/shared/shared_layout.h"
#include "soft/shared/wait.h"

namespace tessera::soft {
namespace {

constexpr Nanos kLookAgain = 100 * kMicrosecond;

// The MPS server of a process, itself or another one; pid 0: none.
ProcessId MpsServerOf(const SharedLayout& layout, pid_t pid) TESSERA_REQUIRES(layout.mutex) {
  for (const SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
    if (slot.mps.server.pid != 0 && slot.process.pid != 0 && slot.process.Here() == pid) return slot.mps.server;
  }
  return {};
}

// Calls `look` with the use of each slot of a living process and of those in MPS with it, under the layout's mutex.
template <typename Look>
Result<void> ForUsesOf(SharedLayout& layout, int device, pid_t pid, Look look) {
  bool found = false;
  const RobustLock lock(layout.mutex);
  const ProcessId server = MpsServerOf(layout, pid);
  for (SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
    if (pid == 0 || slot.process.pid == 0) continue;
    const bool in_group = server.pid != 0 && slot.mps.server == server;
    const bool meant = slot.process.Here() == pid;
    if ((!meant && !in_group) || !slot.process.Alive(layout.pid_namespace)) continue;
    look(slot, slot.use[device]);
    found |= meant;
  }
  if (!found) return Fail(ESRCH, "soft GPU: no process " + std::to_string(pid) + " uses it");
  return {};
}

Result<void> AwaitStandstill(SharedLayout& layout, int device, pid_t pid, Frozen frozen) {
  const Nanos deadline = MonotonicNow() + kStandstill;
  for (;;) {
    bool moves = false;
    // A process that has ended stands still. One that another process has thawed meanwhile need not.
    static_cast<void>(ForUsesOf(layout, device, pid, [&](const SharedSlot& slot, const SharedUse& use) {
      const Frozen now = std::min(frozen, use.frozen.load());
      const bool in_kernel = now >= Frozen::kKernels && use.kernel_steps != 0;
      moves |= in_kernel && (now == Frozen::kAll || !slot.process.Stopped());
      moves |= now >= Frozen::kAll && use.copy_steps != 0;
    }));
    if (!moves) return {};
    if (MonotonicNow() >= deadline) break;
    WaitUntil(MonotonicNow() + kLookAgain);
  }
  return Fail(ETIMEDOUT, "soft GPU: process " + std::to_string(pid) + " was frozen, but does not stand still");
}

}  // namespace

Result<void> SetFrozen(SharedState& state, int device, pid_t pid, Frozen frozen) {
  SharedLayout& layout = state.layout();
  auto found = ForUsesOf(layout, device, pid, [&](const SharedSlot&, SharedUse& use) { use.frozen = frozen; });
  if (!found) return found;
  GrantNext(layout, device);
  return AwaitStandstill(layout, device, pid, frozen);
}

Result<void> SetSlice(SharedState& state, int device, pid_t pid, Nanos slice) {
  return ForUsesOf(state.layout(), device, pid, [&](const SharedSlot&, SharedUse& use) { use.slice = slice; });
}

Result<Nanos> SliceOf(SharedState& state, int device, pid_t pid) {
  Nanos slice = 0;
  const auto found =
      ForUsesOf(state.layout(), device, pid, [&](const SharedSlot&, const SharedUse& use) { slice = use.slice; });
  if (!found) return std::unexpected(found.error());
  return slice != 0 ? slice : state.spec().slice;
}

}  // namespace tessera::soft
