#include "sched/packing/town.h"

#include <algorithm>

#include "base/size.h"

namespace tessera::sched {
namespace {

std::uint64_t LeftOf(std::uint64_t whole, std::uint64_t used) { return whole - std::min(whole, used); }

}  // namespace

std::uint64_t ClaimOf(const Dweller& dweller) { return std::max(dweller.needs.memory, dweller.held); }

Town::Town(const std::vector<Home>& homes, const std::vector<Dweller>& dwellers) : homes_(homes), used_(homes.size()) {
  for (const Dweller& dweller : dwellers) Add(dweller, dweller.home);
}

void Town::Add(const Dweller& dweller, std::size_t home) {
  Used& used = used_[home];
  used.promised += dweller.needs.memory;
  used.claimed += ClaimOf(dweller);
  used.resident += dweller.needs.resident;
  if (dweller.needs.space.empty()) {
    used.alone += dweller.needs.claim.time;
    return;
  }
  const auto known = std::ranges::find_if(used.spaces, [&](const Space& space) {
    return space.owner == dweller.needs.owner && space.name == dweller.needs.space;
  });
  Space& space = known != used.spaces.end()
                     ? *known
                     : used.spaces.emplace_back(Space{.owner = dweller.needs.owner, .name = dweller.needs.space});
  space.members.push_back(dweller.needs.claim);
}

void Town::Remove(const Dweller& dweller, std::size_t home) {
  Used& used = used_[home];
  used.promised -= dweller.needs.memory;
  used.claimed -= ClaimOf(dweller);
  used.resident -= dweller.needs.resident;
  used.alone -= dweller.needs.claim.time;
}

std::uint64_t Town::PlaceLeft(std::size_t home) const { return LeftOf(homes_[home].place, used_[home].claimed); }

std::vector<GpuRoom> Town::RoomsFor(std::uint64_t promise, std::uint64_t claim) const {
  std::vector<GpuRoom> rooms;
  for (std::size_t home = 0; home < homes_.size(); ++home) rooms.push_back(RoomFor(promise, claim, home));
  return rooms;
}

GpuRoom Town::RoomFor(std::uint64_t promise, std::uint64_t claim, std::size_t home) const {
  const Used& used = used_[home];
  GpuRoom room{.unusable = homes_[home].unusable,
               .spaces = used.spaces,
               .alone = used.alone,
               .memory_left = LeftOf(homes_[home].memory, used.promised),
               .resident_left = LeftOf(homes_[home].resident, used.resident)};
  if (room.unusable.empty() && promise <= room.memory_left && claim > PlaceLeft(home))
    room.unusable = "its memory, " + FormatSize(claim) + ", has no place: " + FormatSize(PlaceLeft(home)) + " are left";
  return room;
}

}  // namespace tessera::sched
