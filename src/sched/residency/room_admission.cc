#include "sched/residency/room_admission.h"

#include <algorithm>
#include <optional>

#include "base/size.h"
#include "sched/residency/promises.h"
#include "sched/residency/squeeze.h"
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
std::uint64_t KeptWith(const ResidencyState& state, const Asker& asker, const RoomWish& wish, Nanos now) {
  if (!asker.vgpu.swap) return 0;
  VGpuResidence then = asker.vgpu;
  then.processes[asker.index].wanted = wish.bytes;
  then.processes[asker.index].pins = wish.pins;
  return Kept(state, then, now);
}

// Bytes of the GPU that others leave. What is promised and not in use is lent, but not for good: pinned memory must
// leave place for it, unless it is promised itself.
std::uint64_t LeftByOthers(const ResidencyState& state, const VGpuResidence& vgpu, bool for_good, Nanos now) {
  std::uint64_t theirs = 0;
  for (const VGpuResidence& other : state.vgpus) {
    if (other.id != vgpu.id) theirs += for_good ? HasForGood(state, other, now) : HasForNow(state, other, now);
  }
  return Less(state.capacity, theirs);
}

// Bytes of the vGPU's own room that could be freed: those that it does not use, and those that may go to host memory or
// are going there.
std::uint64_t CouldBeFreed(const ResidencyState& state, const VGpuResidence& vgpu) {
  std::uint64_t bytes = SwapLeft(state, vgpu);
  for (const ProcessResidence& process : vgpu.processes) {
    bytes += process.credit + process.empty;
    if (process.moving == Moving::kOut) bytes += process.ordered;
  }
  return bytes;
}

RoomAnswer Refuse(Reason reason, std::uint64_t most = 0) {
  return {.kind = RoomAnswer::Kind::kRefuse, .reason = reason, .most = most};
}

}  // namespace

RoomAnswer AnswerRoom(const ResidencyState& state, const RoomWish& wish, bool pressed, Nanos now) {
  const auto asker = Find(state, wish.process);
  if (!asker) return Refuse(Reason::kUnknown);
  const VGpuResidence& vgpu = asker->vgpu;
  const std::uint64_t bytes = wish.bytes;
  if (state.AwaitsMissing(now)) return {.kind = RoomAnswer::Kind::kWait};

  // Nothing that can be moved away makes room beyond this. All memory of a program that cannot reach host memory has to
  // be there, or it never runs.
  const ProcessResidence& process = asker->Process();
  const bool all = process.no_host_memory && !process.away;
  const std::uint64_t pinned = vgpu.Pinned() + process.recalled;
  const std::uint64_t needed = all ? vgpu.Pinned() + process.All() : pinned;
  const std::uint64_t left = Less(LeftByOthers(state, vgpu, /*for_good=*/false, now), needed);
  const std::uint64_t most = std::min(vgpu.limit.value_or(state.capacity), state.capacity);
  if (needed > most || bytes > most - needed)
    return Refuse(all ? Reason::kNoHostMemory : Reason::kPinned, std::min(Less(most, needed), left));
  if (bytes == 0) return {.kind = RoomAnswer::Kind::kWait};
  const std::uint64_t kept = KeptWith(state, *asker, wish, now);
  const std::uint64_t stays = kept + (wish.pins ? bytes : 0);
  const bool promised = pinned + stays <= vgpu.request;
  const std::uint64_t left_for_good = promised ? left : Less(LeftByOthers(state, vgpu, /*for_good=*/true, now), pinned);
  if (bytes > left || stays > left_for_good)
    return Refuse(Reason::kKeptByOthers, std::min(left, Less(left_for_good, Less(stays, bytes))));

  const std::uint64_t within_limit = Less(vgpu.limit.value_or(UINT64_MAX), vgpu.Room());
  const std::uint64_t could_be_freed = CouldBeFreed(state, vgpu) + Squeezable(state, vgpu, now);
  if (bytes > within_limit && could_be_freed < bytes - within_limit)
    return Refuse(Reason::kSwapBound, within_limit + could_be_freed);
  const std::uint64_t free = std::min(within_limit, Less(state.capacity, state.Room()));
  if (!process.stopped && !pressed && bytes <= free) {
    const std::uint64_t credit = std::min(kMostCredit, (free - bytes) / kCreditPart);
    return {.kind = RoomAnswer::Kind::kGrant, .credit = DownTo(state.chunk, credit)};
  }
  if (bytes > free && state.mover_hopeless) return Refuse(Reason::kNoMover, free);
  if (bytes > free && now < state.pool.full_until) return Refuse(Reason::kHostMemoryFull, free);
  return {.kind = RoomAnswer::Kind::kWait};
}

std::string Text(const RoomAnswer& answer) {
  const std::string most = "at most " + FormatSize(answer.most) + " can be had at once: ";
  switch (answer.reason) {
    case Reason::kNone:
      return "";
    case Reason::kUnknown:
      return "the process has no memory on this GPU";
    case Reason::kPinned:
      return most + "the rest of memory.limit is pinned; raise memory.limit";
    case Reason::kNoHostMemory:
      return most +
             "a program that was migrated cannot use host memory, so that all it has must be on the GPU; free some of "
             "its memory, or raise memory.limit";
    case Reason::kKeptByOthers:
      return most + "the rest is pinned, promised by memory.request, or kept by memory.swap.max; lower those of others";
    case Reason::kSwapBound:
      return most + "no more of the vGPU may lie in host memory; raise memory.limit or memory.swap.max";
    case Reason::kHostMemoryFull:
      return most + "there is no host memory for what would have to go; free host memory, or lower swap.floor";
    case Reason::kNoMover:
      return most + "the mover does not start, so nothing can be moved; see the daemon's log";
  }
  return "";
}

}  // namespace tessera::sched
