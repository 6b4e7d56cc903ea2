#include "sched/residency/room_admission.h"

#include <algorithm>
#include <optional>

#include "base/size.h"
#include "sched/residency/swap_bounds.h"

namespace tessera::sched {
namespace {

using Reason = RoomAnswer::Reason;

// Room in advance where there is plenty: at most so much, and this part of what is free.
constexpr std::uint64_t kMostCredit = kGiB;
constexpr std::uint64_t kCreditPart = 16;

struct Asker {
  const VGpuResidence& vgpu;
  std::size_t index;  // of its processes
  const ProcessResidence& Process() const { return vgpu.processes[index]; }
};

std::optional<Asker> Find(const ResidencyState& state, ProcessId id) {
  for (const VGpuResidence& vgpu : state.vgpus) {
    for (std::size_t i = 0; i < vgpu.processes.size(); ++i) {
      if (vgpu.processes[i].id == id) return Asker{vgpu, i};
    }
  }
  return {};
}

// Bytes of its vGPU that would have to be on the GPU for good if it got so much.
std::uint64_t KeptWith(const ResidencyState& state, const Asker& asker, std::uint64_t bytes, Nanos now) {
  if (!asker.vgpu.swap) return 0;
  VGpuResidence then = asker.vgpu;
  then.processes[asker.index].wanted = bytes;
  return Kept(state, then, now);
}

// Bytes of the GPU that others have for good.
std::uint64_t KeptByOthers(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  std::uint64_t kept = 0;
  for (const VGpuResidence& other : state.vgpus) {
    if (other.id != vgpu.id) kept += HasForGood(state, other, now);
  }
  return kept;
}

// Bytes of the vGPU's own room that could be freed: those that it does not use, and those that may go to host memory or
// are going there.
std::uint64_t CouldBeFreed(const ResidencyState& state, const VGpuResidence& vgpu) {
  std::uint64_t bytes = MaySwap(state, vgpu);
  for (const ProcessResidence& process : vgpu.processes) {
    bytes += process.credit + process.empty;
    if (process.moving == Moving::kOut) bytes += process.ordered;
  }
  return bytes;
}

RoomAnswer Refuse(Reason reason) { return {.kind = RoomAnswer::Kind::kRefuse, .reason = reason}; }

}  // namespace

RoomAnswer AnswerRoom(const ResidencyState& state, ProcessId id, std::uint64_t bytes, bool pressed, Nanos now) {
  const auto asker = Find(state, id);
  if (!asker) return Refuse(Reason::kUnknown);
  const VGpuResidence& vgpu = asker->vgpu;
  if (state.AwaitsMissing(now)) return {.kind = RoomAnswer::Kind::kWait};

  // Nothing that can be moved away makes room beyond this.
  const std::uint64_t pinned = vgpu.Pinned() + asker->Process().recalled;
  const std::uint64_t most = vgpu.promise.value_or(state.capacity);
  if (pinned > most || bytes > most - pinned) return Refuse(Reason::kPinned);
  if (bytes == 0) return {.kind = RoomAnswer::Kind::kWait};
  if (!vgpu.promise && std::max(bytes, KeptWith(state, *asker, bytes, now)) >
                           Less(state.capacity, pinned + KeptByOthers(state, vgpu, now)))
    return Refuse(Reason::kKeptByOthers);

  const std::uint64_t free = vgpu.promise ? Less(*vgpu.promise, vgpu.Room()) : Less(state.capacity, state.Claimed());
  if (vgpu.promise && bytes > free && CouldBeFreed(state, vgpu) < bytes - free) return Refuse(Reason::kSwapBound);
  if (!asker->Process().stopped && !pressed && bytes <= free) {
    const std::uint64_t credit = std::min(kMostCredit, (free - bytes) / kCreditPart);
    return {.kind = RoomAnswer::Kind::kGrant, .credit = DownTo(state.chunk, credit)};
  }
  if (bytes > free && state.mover_hopeless) return Refuse(Reason::kNoMover);
  if (bytes > free && now < state.pool.full_until) return Refuse(Reason::kHostMemoryFull);
  return {.kind = RoomAnswer::Kind::kWait};
}

const char* Text(RoomAnswer::Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "";
    case Reason::kUnknown:
      return "the process has no memory on this GPU";
    case Reason::kPinned:
      return "beside what is pinned the vGPU can never have so much on the GPU at once";
    case Reason::kKeptByOthers:
      return "others have so much of the GPU for good, by limits, pinned memory or memory.swap.max";
    case Reason::kSwapBound:
      return "it does not fit into memory.limit, and no more of the vGPU may lie in host memory";
    case Reason::kHostMemoryFull:
      return "it does not fit, and there is no host memory for what would have to go";
    case Reason::kNoMover:
      return "it does not fit, and memory cannot be moved: the mover does not start";
  }
  return "";
}

}  // namespace tessera::sched
