#include "mover/pool/pool_growth.h"

#include <algorithm>
#include <utility>

namespace tessera::mover {

namespace {

std::uint64_t FreeOf(const Pool& pool, std::optional<Domain> domain) {
  const auto found = pool.FreeSlots().find(domain);
  return found == pool.FreeSlots().end() ? 0 : found->second.size();
}

}  // namespace

void PoolGrowth::Aim(std::uint64_t wanted, std::uint64_t most) {
  aimed_ = true;
  most_ = std::min(most, slots_);
  wanted_ = std::min(wanted, most_);
  stopped_ = false;
}

void PoolGrowth::AimAhead(std::uint64_t prepared) {
  prepared_ = prepared;
  wanted_ = std::min(wanted_, prepared);
  stopped_ = false;
}

std::uint64_t PoolGrowth::Missing(const Demand& demand) const {
  std::uint64_t missing = 0;
  for (const auto& [domain, chunks] : demand) missing += chunks - std::min(chunks, FreeOf(pool_, domain));
  return missing - std::min(missing, FreeOf(pool_, std::nullopt));
}

PoolGrowth::Job PoolGrowth::Free(Pool::Removed removed) {
  stopped_ = false;
  return {.kind = Job::Kind::kFree, .removed = std::move(removed)};
}

PoolGrowth::Job PoolGrowth::Make() {
  ++making_;
  return {.kind = Job::Kind::kMake, .removed = {}};
}

PoolGrowth::Job PoolGrowth::Next(const Demand& demand, bool loads) {
  if (!aimed_) return {};
  const std::uint64_t missing = Missing(demand);
  if (auto transit = pool_.RemoveGivenUp(loads ? Pool::GivenUp::kHere : Pool::GivenUp::kOnGpus))
    return Free(std::move(*transit));
  if (rests_ && missing <= making_) return {};
  if (auto given_up = pool_.RemoveGivenUp()) return Free(std::move(*given_up));
  const std::uint64_t total = pool_.Count().total;
  const std::uint64_t target = std::min(most_, std::max(wanted_, total + missing));
  if (total + making_ < target && !stopped_) return Make();

  // No more may be made, but slots that are free and of no use to others may be made anew.
  if (missing > making_) {
    for (const auto& [domain, slots] : pool_.FreeSlots()) {
      if (!domain) continue;
      const auto wanted = demand.find(*domain);
      if (slots.size() > (wanted == demand.end() ? 0 : wanted->second)) return Free(pool_.RemoveFree(domain));
    }
  } else if (total + making_ > std::max(wanted_, std::min(prepared_, most_)) && demand.empty()) {
    for (const auto& [domain, slots] : pool_.FreeSlots()) {
      if (domain && !slots.empty()) return Free(pool_.RemoveFree(domain));
    }
    if (FreeOf(pool_, std::nullopt) > 0) return Free(pool_.RemoveFree(std::nullopt));
  }
  return {};
}

PoolGrowth::Job PoolGrowth::Prepare(const std::set<Domain>& present) {
  if (!aimed_ || rests_ || prepared_ == 0 || making_ > 0) return {};
  for (const auto& [domain, slots] : pool_.FreeSlots()) {
    if (domain && !present.contains(*domain) && !slots.empty()) return Free(pool_.RemoveFree(domain));
  }
  if (stopped_ || pool_.Count().total >= std::min(prepared_, most_)) return {};
  return Make();
}

}  // namespace tessera::mover
