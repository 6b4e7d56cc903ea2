// Turns: who runs when not all fits. Every class has its own: its first one leads, those that fit beside it run along.
// The first of the highest class runs whatever it needs; lower classes share what is left by the same rules.
#include <algorithm>
#include <tuple>

#include "sched/residency/residency.h"

namespace tessera::sched {

// By class; in a class whose turn it is, who runs along with it (that changes with the turn only), then the queue.
void Residency::SortQueue() {
  std::ranges::sort(queue_, {}, [](const Member* member) {
    return std::tuple(member->priority, !member->leads, !member->kept, member->place);
  });
}

// A turn's length in proportion to its weight: so long on average that moves take `most_moving` of the time of a round,
// but none is too short, and none too long as far as the weights allow it.
void Residency::MeasureClass(Class& members) const {
  double moves = 0;
  double measured = 0;
  double weights = 0;
  std::uint32_t least = UINT32_MAX;
  std::uint32_t most = 0;
  for (const Member* member : members.queue) {
    weights += member->weight;
    least = std::min(least, member->weight);
    most = std::max(most, member->weight);
    if (!member->measured) continue;
    moves += static_cast<double>(member->move());
    ++measured;
  }
  const double mean_weight = weights / static_cast<double>(members.queue.size());
  const double move = measured > 0 ? moves / measured : 0;
  const double wanted = move * (1 - config_.most_moving) / config_.most_moving / mean_weight;
  members.time_per_weight = std::max(std::min(wanted, static_cast<double>(config_.turn_max) / most),
                                     static_cast<double>(config_.turn_min) / least);
}

Nanos Residency::Length(const Class& members, const Member& member) const {
  const double length = members.time_per_weight * member.weight;
  if (length >= static_cast<double>(config_.turn_max)) return config_.turn_max;
  return std::max(static_cast<Nanos>(length), config_.turn_min);
}

// Its turn is over when it had so much. What it had before it began to lead, along with others or until a higher class
// came, counts for half a turn at most: a shorter turn is not worth its move.
Nanos Residency::TurnEnd(const Class& members, const Member& leader) const {
  const Nanos length = Length(members, leader);
  return std::max(length, leader.had_before + std::max(length / 2, config_.turn_min));
}

bool Residency::Waits(const Class& members) const {
  return std::ranges::any_of(members.queue, [](const Member* member) { return !member->chosen; });
}

Residency::Member* Residency::Leader(const Class& members) const {
  const auto leader = std::ranges::find_if(members.queue, &Member::leads);
  return leader == members.queue.end() ? nullptr : *leader;
}

void Residency::ShareInTurns() {
  Choose();
  // What one class gives up or takes may make others wait: at most one turn of each ends here.
  const auto rotate_all = [&] {
    bool rotated = false;
    for (Class& members : classes_) rotated |= Rotate(members);
    return rotated;
  };
  while (rotate_all()) {
    SortQueue();
    Choose();
  }
  for (Class& members : classes_) SettleTurn(members);
  SortQueue();
  for (Member* member : queue_) {
    if (member->chosen) SetTarget(*member, true, member->demand);
  }
  // Who runs soonest keeps most.
  for (Member* member : queue_) {
    if (!member->chosen) SetTarget(*member, false, member->resident);
  }
}

void Residency::Choose() {
  std::uint64_t left = capacity_;
  for (Member* member : queue_) {
    member->chosen = member->demand <= left || member == queue_.front();
    if (member->chosen) left -= std::min(member->demand, left);
  }
}

// Ends the turn of a class if it is over and somebody waits for it. Whoever had a turn's time in it goes to the back.
bool Residency::Rotate(Class& members) {
  Member* leader = Leader(members);
  if (leader == nullptr || !leader->chosen || leader->had < TurnEnd(members, *leader) || !Waits(members)) return false;
  for (Member* member : members.queue) {
    if (member == leader || (member->chosen && member->had >= Length(members, *member))) Enqueue(*member);
    member->kept = false;
  }
  return true;
}

// What is chosen becomes a turn: a new one, or the one that is under way.
void Residency::SettleTurn(Class& members) {
  Member* leader = nullptr;
  for (Member* member : members.queue) {
    member->kept = member->chosen;
    if (member->chosen && leader == nullptr) {
      leader = member;
      if (!leader->leads) leader->had_before = leader->had;
      leader->leads = true;
      continue;
    }
    member->leads = false;
    if (!member->chosen && member->had >= Length(members, *member)) Enqueue(*member);
  }
}

Nanos Residency::NextTurnEnd() const {
  Nanos next = kNever;
  for (const Class& members : classes_) {
    const Member* leader = Leader(members);
    if (leader == nullptr || !leader->started || !Waits(members)) continue;
    next = std::min(next, now_ + TurnEnd(members, *leader) - leader->had);
  }
  return next;
}

}  // namespace tessera::sched
