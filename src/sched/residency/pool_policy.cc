#include "sched/residency/pool_policy.h"

#include <algorithm>
#include <utility>

#include "sched/residency/bytes.h"
#include "sched/residency/exchange.h"

namespace tessera::sched {

namespace {

// What slots for these bytes have beside them, at most.
std::uint64_t BlankOf(const ResidencyState& state, std::uint64_t bytes, std::uint64_t blank) {
  return SlotsFor(bytes, blank, state.chunk, state.unit) - UpTo(state.chunk, bytes);
}

}  // namespace

std::uint64_t PoolNeeded(const ResidencyState& state) {
  std::uint64_t shared = 0;  // what vGPUs want to have on the GPU
  std::uint64_t pinned = 0;  // of the GPU
  std::uint64_t beyond = 0;  // what they have to have elsewhere
  std::uint64_t out = 0;     // what is out already, or about to go
  std::uint64_t blank = 0;
  for (const VGpuResidence& vgpu : state.vgpus) {
    std::uint64_t all = 0, its_pinned = 0, its_blank = 0;
    for (const ProcessResidence& process : vgpu.processes) {
      if (process.in_own_file) continue;  // before it comes back, that is read
      its_pinned += process.pinned + (process.pins ? process.wanted : 0);
      all += process.Whole() + (process.pins ? 0 : process.wanted);
      const std::uint64_t going =
          (process.away ? process.Movable() : process.push) + process.OutSoon() - process.swapped;
      out += process.swapped + process.holes_out + UpTo(state.chunk, going) +
             BlankOf(state, process.swapped + going, process.blank) + std::min(process.hot_out, Exchange::kMostBytes);
      its_blank += process.blank;
    }
    const std::uint64_t may_be_in = std::min(all, Less(vgpu.limit.value_or(UINT64_MAX), its_pinned));
    shared += may_be_in;
    pinned += its_pinned;
    beyond += SlotsFor(all - may_be_in, its_blank, state.chunk, state.unit);
    blank += its_blank;
  }
  beyond += SlotsFor(Less(shared, Less(state.capacity, pinned) / 2), blank, state.chunk, state.unit);
  return std::min(state.pool.most, std::max(beyond, out));
}

std::uint64_t PoolWorthwhile(const ResidencyState& state) {
  if (state.pool.prepare) return std::min(state.pool.most, UpTo(state.chunk, *state.pool.prepare));
  std::uint64_t bytes = 0;
  for (const VGpuResidence& vgpu : state.vgpus) {
    std::uint64_t all = 0, blank = 0;
    for (const ProcessResidence& process : vgpu.processes) {
      if (process.in_own_file) continue;
      all += process.Whole() + (process.pins ? 0 : process.wanted);
      blank += process.blank;
    }
    bytes += SlotsFor(std::min(all, vgpu.swap.value_or(UINT64_MAX)), blank, state.chunk, state.unit);
  }
  return std::min(state.pool.most, bytes);
}

const PoolGoal& PoolPolicy::Decide(const ResidencyState& state, Nanos now) {
  const PoolResidence& pool = state.pool;
  if (!std::exchange(knows_, true)) kept_ = goal_.prepared = pool.Goal();  // what an earlier daemon left
  const std::uint64_t worthwhile = PoolWorthwhile(state);
  since_ = worthwhile == 0 ? kNever : std::min(since_, now);
  goal_.needed = PoolNeeded(state);
  goal_.prepares = worthwhile > 0 && now - since_ >= kBeginsAfter;
  const std::uint64_t wish = std::max(goal_.needed, goal_.prepares ? worthwhile : 0);
  Keep(wish, now);
  kept_ = std::min(kept_, pool.most);
  const std::uint64_t allowed = Allowed(pool, state.chunk, now);
  goal_.prepared = std::max(goal_.needed, std::min({kept_, allowed, std::max(goal_.prepared, wish)}));
  goal_.is_short = goal_.prepares && pool.machine && goal_.prepared < wish;

  next_look_ = falls_at_;
  if (worthwhile > 0 && !goal_.prepares) next_look_ = std::min(next_look_, since_ + kBeginsAfter);
  if (goal_.is_short && now < rests_until_) next_look_ = std::min(next_look_, rests_until_);
  return goal_;
}

// What was worthwhile once stays so for a while.
void PoolPolicy::Keep(std::uint64_t wish, Nanos now) {
  if (wish < kept_ && falls_at_ == kNever) falls_at_ = now + kKeepsFor;
  if (wish < kept_ && now < falls_at_) return;
  kept_ = wish;
  falls_at_ = kNever;
}

// What the machine allows the pool to have, beside what is needed. Within a band neither more is prepared nor anything
// given back, so that one slot is not made and freed for ever.
std::uint64_t PoolPolicy::Allowed(const PoolResidence& pool, std::uint64_t chunk, Nanos now) {
  const std::uint64_t before = goal_.prepared;
  const bool pressed = pool.pressure >= kMostPressure;
  if (pressed) rests_until_ = now + kRestsFor;
  if (pressed) return 0;
  if (!pool.machine) return before;
  const std::uint64_t margin = std::max(kLeastMargin, *pool.machine / kMarginPart);
  const std::uint64_t enough = DownTo(chunk, Less(*pool.machine, margin));
  if (before > Less(*pool.machine, margin / 2)) {
    rests_until_ = now + kRestsFor;
    return enough;
  }
  return now < rests_until_ ? before : std::max(before, enough);
}

}  // namespace tessera::sched
