#include "sched/bursts/burst_meter.h"

#include <algorithm>

namespace tessera::sched {
namespace {

void Join(BurstFigures& sum, const BurstFigures& slot) {
  sum.lengths.Join(slot.lengths);
  sum.violations += slot.violations;
  sum.worked += slot.worked;
  sum.solo += slot.solo;
}

}  // namespace

std::optional<double> BurstMeter::AddWork(const Burst& piece, Nanos now) {
  if (piece.length() <= 0) return std::nullopt;
  if (began_ == kNever) began_ = piece.begin;
  if (piece.alone) solo_.AddWork(piece);
  const std::optional<double> solo = solo_.Of(piece.submissions);
  if (!solo) return std::nullopt;
  for (BurstFigures* figures : {&since_start_, &Slot(now)}) {
    figures->worked += static_cast<double>(piece.length());
    figures->solo += *solo;
  }
  return solo;
}

bool BurstMeter::AddBurst(const Burst& burst, Nanos now, bool counts) {
  if (burst.length() <= 0) return false;
  if (burst.alone) solo_.AddBurst(burst);
  const bool violated = burst.length() > target_;
  if (counts) AddRequest(burst.length(), violated, now);
  return violated;
}

void BurstMeter::AddRequest(Nanos latency, bool violated, Nanos now) {
  for (BurstFigures* figures : {&since_start_, &Slot(now)}) {
    figures->lengths.Add(latency);
    figures->violations += violated ? 1 : 0;
  }
}

void BurstMeter::ForgetLengths() {
  const auto forget = [](BurstFigures& figures) { figures = {.worked = figures.worked, .solo = figures.solo}; };
  forget(since_start_);
  std::ranges::for_each(slots_, forget);
}

BurstFigures BurstMeter::LastMinute(Nanos now) {
  Slot(now);
  BurstFigures sum;
  for (const BurstFigures& slot : slots_) Join(sum, slot);
  return sum;
}

double BurstMeter::Load(Nanos now) {
  Slot(now);
  if (began_ == kNever) return 0;
  double solo = 0;
  for (const BurstFigures& slot : slots_) solo += slot.solo;
  const Nanos window = std::min<Nanos>(now - began_, (kSlots - 1) * kSlot + now % kSlot);
  return solo / static_cast<double>(std::max<Nanos>(window, kSecond));
}

// The slot of this moment, after those that are over were emptied for new figures.
BurstFigures& BurstMeter::Slot(Nanos now) {
  const std::int64_t number = now / kSlot;
  slot_ = std::max(slot_, number - static_cast<std::int64_t>(kSlots));
  while (slot_ < number) {
    ++slot_;
    slots_.at(static_cast<std::size_t>(slot_) % kSlots) = {};
  }
  return slots_.at(static_cast<std::size_t>(slot_) % kSlots);
}

}  // namespace tessera::sched
