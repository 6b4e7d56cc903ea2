#include "mover/pool/pool.h"

#include <algorithm>

namespace tessera::mover {

Pool::Pool(KeyTable table) : table_(std::move(table)) {
  for (Slot slot = static_cast<Slot>(table_.size()); slot-- > 0;) unused_.push_back(slot);
}

void Pool::Aim(std::uint64_t wanted, std::uint64_t most) {
  aimed_ = true;
  most_ = std::min<std::uint64_t>(most, table_.size());
  wanted_ = std::min(wanted, most_);
  stopped_ = false;
}

Slot Pool::Add(HostMemory memory) {
  const Slot slot = unused_.back();
  unused_.pop_back();
  table_.Reset(slot, RandomNumber());
  slots_.emplace(slot, std::move(memory));
  free_[std::nullopt].push_back(slot);
  return slot;
}

std::optional<Slot> Pool::Earlier(std::uint64_t number) const {
  for (const Slot slot : unused_) {
    if (number != 0 && table_[slot].memory == number) return slot;
  }
  return {};
}

void Pool::Restore(Slot slot, HostMemory memory) {
  std::erase(unused_, slot);
  slots_.emplace(slot, std::move(memory));
  table_[slot].key != 0 ? table_.Leave(slot) : free_[DomainOf(slot)].push_back(slot);
}

std::optional<Domain> Pool::DomainOf(Slot slot) const {
  return table_[slot].given != 0 ? std::optional(table_[slot].domain) : std::nullopt;
}

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

void Pool::Give(Slot slot, Domain domain, pid_t owner) {
  table_.MarkGiven(slot, domain);
  (void)table_.Use(slot, owner);  // without a key the next mover does not find it
}

void Pool::GiveBack(Slot slot) {
  table_.Clear(slot);
  free_[DomainOf(slot)].push_back(slot);
}

std::vector<std::pair<std::uint64_t, int>> Pool::Memories() const {
  std::vector<std::pair<std::uint64_t, int>> memories;
  for (const auto& [slot, memory] : slots_) memories.emplace_back(NumberOf(slot), memory.fd.Get());
  return memories;
}

void Pool::GiveUp(Slot slot) { given_up_.push_back(slot); }

void Pool::Abandon(pid_t owner) {
  for (const Slot slot : table_.Abandon(owner)) GiveUp(slot);
}

bool Pool::Sweep(Nanos now) {
  const auto unclaimed = table_.Sweep(now);
  for (const Slot slot : unclaimed.ended) GiveBack(slot);
  for (const Slot slot : unclaimed.late) GiveUp(slot);
  return !unclaimed.ended.empty() || !unclaimed.late.empty();
}

// Its entry stays as it is until the slot has other memory: a mover that dies now leaves this one to the next.
Pool::Job Pool::FreeSlot(Slot slot) {
  Job job = {.kind = Job::Kind::kFree, .memory = std::move(slots_.at(slot)), .number = NumberOf(slot)};
  slots_.erase(slot);
  unused_.push_back(slot);
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
  if (!aimed_) return {};
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
