#include "mover/pool.h"

#include <algorithm>

namespace tessera::mover {

void Pool::Aim(std::uint64_t wanted, std::uint64_t most) {
  most_ = most;
  wanted_ = std::min(wanted, most);
  stopped_ = false;
}

Slot Pool::Insert(State state) {
  const Slot slot = next_++;
  slots_.emplace(slot, std::move(state));
  return slot;
}

Slot Pool::Add(HostMemory memory) {
  const Slot slot = Insert({.memory = std::move(memory)});
  free_[std::nullopt].push_back(slot);
  return slot;
}

Slot Pool::Adopt(HostMemory memory, Domain domain) { return Insert({.memory = std::move(memory), .domain = domain}); }

std::optional<Slot> Pool::Take(Domain domain) {
  for (const std::optional<Domain> from : {std::optional(domain), std::optional<Domain>()}) {
    std::vector<Slot>& free = free_[from];
    if (free.empty()) continue;
    const Slot slot = free.back();
    free.pop_back();
    return slot;
  }
  return {};
}

std::uint64_t Pool::FreeOf(std::optional<Domain> domain) const {
  const auto found = free_.find(domain);
  return found == free_.end() ? 0 : found->second.size();
}

std::uint64_t Pool::FreeFor(Domain domain) const { return FreeOf(domain) + FreeOf(std::nullopt); }

std::uint64_t Pool::FreeSlots() const {
  std::uint64_t count = 0;
  for (const auto& [domain, slots] : free_) count += slots.size();
  return count;
}

std::uint64_t Pool::used() const { return total() - FreeSlots() - given_up_.size(); }

void Pool::MarkGiven(Slot slot, Domain domain) { slots_.at(slot).domain = domain; }

void Pool::GiveBack(Slot slot) { free_[slots_.at(slot).domain].push_back(slot); }

void Pool::GiveUp(Slot slot) { given_up_.push_back(slot); }

Pool::Job Pool::FreeSlot(Slot slot) {
  Job job = {.kind = Job::Kind::kFree, .memory = std::move(slots_.at(slot).memory)};
  slots_.erase(slot);
  stopped_ = false;
  return job;
}

Pool::Job Pool::FreeOne(std::optional<Domain> domain) {
  const Slot slot = free_[domain].back();
  free_[domain].pop_back();
  return FreeSlot(slot);
}

std::uint64_t Pool::Missing(const Demand& demand) const {
  std::uint64_t missing = 0;
  for (const auto& [domain, chunks] : demand) missing += chunks - std::min(chunks, FreeOf(domain));
  return missing - std::min(missing, FreeOf(std::nullopt));
}

Pool::Job Pool::Next(const Demand& demand) {
  if (!given_up_.empty()) {
    const Slot slot = given_up_.back();
    given_up_.pop_back();
    return FreeSlot(slot);
  }
  const std::uint64_t missing = Missing(demand);
  const std::uint64_t target = std::min(most_, std::max(wanted_, total() + missing));
  if (total() < target && !stopped_) return {.kind = Job::Kind::kMake};

  // No more may be made, but what others have no use for may be made anew.
  if (missing > 0) {
    for (const auto& [domain, slots] : free_) {
      if (!domain) continue;
      const auto wanted = demand.find(*domain);
      if (slots.size() > (wanted == demand.end() ? 0 : wanted->second)) return FreeOne(domain);
    }
  } else if (total() > wanted_ && demand.empty()) {
    for (const auto& [domain, slots] : free_) {
      if (domain && !slots.empty()) return FreeOne(domain);
    }
    if (FreeOf(std::nullopt) > 0) return FreeOne(std::nullopt);
  }
  return {};
}

}  // namespace tessera::mover
