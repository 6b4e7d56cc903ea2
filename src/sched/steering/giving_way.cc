#include "sched/steering/giving_way.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "sched/steering/slices.h"

namespace tessera::sched {
namespace {

// Where two run in the gaps, a switch lies between them: with shorter slices that takes more of the gaps than turns do.
constexpr Nanos kSharedSlice = 2 * kMillisecond;
// The mean of the turns. Each ends with a freeze and a thaw.
constexpr Nanos kTurn = 250 * kMillisecond;
constexpr Nanos kLeastTurn = 25 * kMillisecond;
// A class that has been idle for so long no longer shortens the slices of lower ones.
constexpr Nanos kLingers = kSecond;

void Unseat(SteeredVgpu& vgpu, Nanos now) {
  if (vgpu.seated_since != kNever) vgpu.unseated_at = now;
  vgpu.seated_since = kNever;
  vgpu.soft_slice = 0;
}

std::vector<double> PartsOf(const std::vector<SteeredVgpu*>& vgpus) {
  std::vector<Shares> shares;
  for (const SteeredVgpu* vgpu : vgpus) shares.push_back(vgpu->shares());
  std::vector<double> parts = DueParts(shares);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part /= sum;
  return parts;
}

}  // namespace

Nanos GivingWay::PatienceOf(const SteeredVgpu& vgpu) const {
  if (vgpu.shares().strict) return 0;
  const Nanos patience = vgpu.shares().patience > 0 ? vgpu.shares().patience : config_.patience;
  return patience > 0 ? std::max(patience, config_.least_soft_slice) : 0;
}

// Only a vGPU that gives way lingers: for the others, lower classes stand still or have the GPU.
Nanos GivingWay::LingersUntil(const SteeredVgpu& vgpu) const {
  if (PatienceOf(vgpu) == 0) return 0;
  if (vgpu.active) return kNever;
  return vgpu.seen_active == kNever ? 0 : vgpu.seen_active + kLingers;
}

bool GivingWay::WouldStop(const SteeredVgpu& vgpu, Nanos now) const {
  return !vgpu.active && !vgpu.exhausted && LingersUntil(vgpu) <= now;
}

void GivingWay::Update(SteeredVgpus& vgpus, OrderList& orders, Nanos now) {
  deadline_ = kNever;
  lowest_ = kNoClass;
  for (Members& members : classes_) members.clear();
  for (auto& [_, vgpu] : vgpus) {
    vgpu.cut = false;
    classes_.at(vgpu.shares().priority).push_back(&vgpu);
  }
  Room room;
  for (std::uint32_t number = 0; number < kNoClass; ++number) {
    const Members& members = classes_.at(number);
    Seat(members, room, orders, now);
    Narrow(members, room, now);
    if (std::ranges::any_of(members, [](const SteeredVgpu* vgpu) { return vgpu->claims() && !vgpu->barred; }))
      lowest_ = number;
  }
  Divide(room);
  for (auto& [_, vgpu] : vgpus) {
    vgpu.cut = vgpu.cut && vgpu.SliceTooLong();
    if (vgpu.cut) deadline_ = now;  // the orders of this pass make its slice short
  }
}

// An idle vGPU is barred where no seat is left for it: to close its gate costs no driver call.
void GivingWay::Seat(const Members& members, Room& room, OrderList& orders, Nanos now) {
  if (room.left == kNever) {
    for (SteeredVgpu* vgpu : members) {
      Unseat(*vgpu, now);
      vgpu->barred = false;
    }
    return;
  }
  Members claimants;
  std::ranges::copy_if(members, std::back_inserter(claimants), &SteeredVgpu::claims);
  if (!claimants.empty()) deadline_ = std::min(deadline_, room.changes_at);
  // The best lower class gets what there is. Those below it get the least, for its gaps.
  const bool best = room.best.empty();
  const Nanos slice = best ? std::min(room.left, kSharedSlice) : config_.least_soft_slice;
  std::size_t seats = 0;
  if (room.left >= config_.least_soft_slice) seats = best ? static_cast<std::size_t>(room.left / slice) : 1;
  const std::size_t seated = std::min(seats, claimants.size());
  if (seated > 0 && seated < claimants.size()) TakeTurns(claimants, seats, orders, now);
  for (SteeredVgpu* vgpu : members) {
    vgpu->barred = seats <= claimants.size();
    if (!vgpu->claims()) Unseat(*vgpu, now);
  }
  for (std::size_t i = 0; i < claimants.size(); ++i) {
    SteeredVgpu& vgpu = *claimants[i];
    vgpu.barred = i >= seated;
    if (vgpu.barred) {
      Unseat(vgpu, now);
      continue;
    }
    vgpu.seated_since = std::min(vgpu.seated_since, now);
    vgpu.soft_slice = slice;
    vgpu.cut = room.claimed;
  }
  if (best) {
    room.best.assign(claimants.begin(), claimants.begin() + static_cast<std::ptrdiff_t>(seated));
    room.best_left = room.left;
  } else {
    room.best_left -= static_cast<Nanos>(seated) * slice;
  }
  room.left = seated < claimants.size() ? 0 : room.left - static_cast<Nanos>(seated) * slice;
}

// First those whose turn lasts, then those that have waited the longest. A turn is as long as the vGPU's part of the
// class's time demands, and lasts until the driver calls are there that change it.
void GivingWay::TakeTurns(Members& claimants, std::size_t seats, OrderList& orders, Nanos now) {
  struct Turn {
    SteeredVgpu* vgpu;
    Nanos ends;
    bool lasts;
    Nanos waits_since;
  };
  const std::vector<double> parts = PartsOf(claimants);
  const Nanos paid_at = orders.When(now, OrderList::kCallsForSlice);
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < claimants.size(); ++i) {
    SteeredVgpu& vgpu = *claimants[i];
    const bool seated = vgpu.seated_since != kNever;
    const auto length = static_cast<Nanos>(static_cast<double>(kTurn) * parts[i] * static_cast<double>(parts.size()));
    const Nanos ends = (seated ? vgpu.seated_since : now) + std::max(length, kLeastTurn);
    turns.push_back(
        {&vgpu, std::max(ends, paid_at), seated && std::max(ends, paid_at) > now, seated ? now : vgpu.unseated_at});
  }
  std::ranges::sort(turns, {},
                    [](const Turn& turn) { return std::tuple(!turn.lasts, turn.waits_since, turn.vgpu->id); });
  for (std::size_t i = 0; i < seats; ++i) deadline_ = std::min(deadline_, turns[i].ends);
  std::ranges::transform(turns, claimants.begin(), &Turn::vgpu);
}

void GivingWay::Narrow(const Members& members, Room& room, Nanos now) const {
  for (const SteeredVgpu* vgpu : members) {
    const Nanos lingers_until = LingersUntil(*vgpu);
    if (!vgpu->claims() && lingers_until <= now) continue;
    room.claimed |= vgpu->claims();
    room.left = std::min(room.left, PatienceOf(*vgpu));
    if (lingers_until > now) room.changes_at = std::min(room.changes_at, lingers_until);
  }
}

// The best lower class divides by weight what it has. A vGPU that is due too little gets the least.
void GivingWay::Divide(const Room& room) const {
  if (room.best.empty()) return;
  const std::vector<double> parts = PartsOf(room.best);
  std::vector<std::pair<double, SteeredVgpu*>> by_part;
  for (std::size_t i = 0; i < parts.size(); ++i) by_part.emplace_back(parts[i], room.best[i]);
  std::ranges::sort(by_part, {}, [](const auto& entry) { return std::pair(entry.first, entry.second->id); });
  auto left = static_cast<double>(room.best_left);
  double parts_left = 1;
  for (const auto& [part, vgpu] : by_part) {
    const double slice = parts_left > 0 ? left * std::min(1.0, part / parts_left) : left;
    vgpu->soft_slice = std::max(config_.least_soft_slice, static_cast<Nanos>(slice));
    left -= static_cast<double>(vgpu->soft_slice);
    parts_left -= part;
  }
}

}  // namespace tessera::sched
