#include "mover/pool/pool.h"

#include <algorithm>

namespace tessera::mover {

Pool::Pool(KeyTable& table) : table_(table) {
  for (Slot slot = static_cast<Slot>(table_.size()); slot-- > 0;) unused_.push_back(slot);
}

Slot Pool::Add(HostMemory memory) {
  const Slot slot = unused_.back();
  unused_.pop_back();
  table_.Reset(slot, RandomNumber());
  if (memory.transit) {
    table_.Mark(slot, KeyTable::Entry::kTransit);
    Insert(slot, std::move(memory));
  } else {
    added_.emplace(slot, std::move(memory));
  }
  return slot;
}

bool Pool::Admit(std::uint64_t number) {
  const auto found =
      std::ranges::find_if(added_, [&](const auto& each) { return EntryOf(each.first).memory == number; });
  if (found == added_.end()) return false;
  free_[std::nullopt].push_back(found->first);
  slots_.insert(added_.extract(found));
  return true;
}

std::optional<Slot> Pool::Earlier(std::uint64_t number) const {
  for (const Slot slot : unused_) {
    if (number != 0 && EntryOf(slot).memory == number) return slot;
  }
  return {};
}

void Pool::Restore(Slot slot, HostMemory memory) {
  std::erase(unused_, slot);
  Insert(slot, std::move(memory));
  EntryOf(slot).key != 0 ? table_.Leave(slot) : AddFree(slot);
}

void Pool::Insert(Slot slot, HostMemory memory) {
  if (memory.transit) ++transits_;
  slots_.emplace(slot, std::move(memory));
}

// Nobody but the owner may get memory that is in two pools.
void Pool::AddFree(Slot slot) {
  using Entry = KeyTable::Entry;
  EntryOf(slot).Has(Entry::kShared | Entry::kTransit) ? GiveUp(slot) : free_[DomainOf(slot)].push_back(slot);
}

std::optional<Domain> Pool::DomainOf(Slot slot) const {
  return EntryOf(slot).Has(KeyTable::Entry::kGiven) ? std::optional(EntryOf(slot).domain) : std::nullopt;
}

// It is memory of this GPU.
bool Pool::IsHere(Slot slot) const { return slots_.at(slot).transit && !EntryOf(slot).Elsewhere(); }

void Pool::CountGivenUp(Slot slot, std::uint64_t sign) {
  if (slots_.at(slot).transit) transits_given_up_ += sign;
  if (IsHere(slot)) here_given_up_ += sign;
}

void Pool::GiveUp(Slot slot) {
  CountGivenUp(slot, 1);
  given_up_.push_back(slot);
}

bool Pool::TakeBack(Slot slot) {
  if (read_.contains(slot) || std::erase(given_up_, slot) == 0) return false;
  CountGivenUp(slot, -std::uint64_t{1});
  return true;
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

void Pool::Give(Slot slot, Domain domain, pid_t owner) {
  table_.MarkGiven(slot, domain);
  (void)table_.Use(slot, owner);  // without a key the next mover does not find it
}

void Pool::GiveUnder(std::uint64_t key, Slot slot, Domain domain, pid_t owner) {
  table_.MarkGiven(slot, domain);
  table_.UseParked(slot, owner, key);
}

void Pool::GiveBack(Slot slot) {
  table_.Clear(slot);
  if (const auto found = read_.find(slot); found != read_.end()) {
    found->second = true;
    return;
  }
  AddFree(slot);
}

void Pool::EndRead(Slot slot) {
  if (read_.extract(slot).mapped()) AddFree(slot);
}

std::optional<Pool::Removed> Pool::RemoveGivenUp(GivenUp which) {
  if (which == GivenUp::kHere && here_given_up_ == 0) return {};
  if (which == GivenUp::kOnGpus && transits_given_up_ == 0) return {};
  if (which == GivenUp::kAny && !vacated_.empty()) {
    std::optional<Removed> removed = std::move(vacated_.back());
    vacated_.pop_back();
    return removed;
  }
  const auto is = [&](Slot slot) {
    return which == GivenUp::kAny || (which == GivenUp::kHere ? IsHere(slot) : slots_.at(slot).transit);
  };
  const auto found = std::ranges::find_if(given_up_, [&](Slot slot) { return !read_.contains(slot) && is(slot); });
  if (found == given_up_.end()) return {};
  const Slot slot = *found;
  given_up_.erase(found);
  CountGivenUp(slot, -std::uint64_t{1});
  return Remove(slot);
}

Pool::Removed Pool::RemoveFree(std::optional<Domain> domain) {
  const Slot slot = free_[domain].back();
  free_[domain].pop_back();
  return Remove(slot);
}

// The slot's entry stays as it is until the slot has other memory: a mover that dies now leaves this one to the next.
Pool::Removed Pool::Remove(Slot slot) {
  Removed removed = {.memory = std::move(slots_.at(slot)), .number = EntryOf(slot).memory};
  slots_.erase(slot);
  if (removed.memory.transit) --transits_;
  unused_.push_back(slot);
  return removed;
}

Pool::Figures Pool::Count() const {
  Figures figures = {.total = slots_.size() - transits_, .transits_given_up = here_given_up_};
  for (const auto& [domain, slots] : free_) figures.free += slots.size();
  figures.used = figures.total - figures.free - (given_up_.size() - transits_given_up_);
  return figures;
}

}  // namespace tessera::mover
