#include "sched/turns/residency_turns.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tessera::sched {
namespace {

// Of the mean of moves, what the last one counts for.
constexpr Nanos kMovesRemembered = 4;

}  // namespace

Nanos ResidencyMember::Move() const { return std::max(last_move, mean_move); }

// A move that is not typical stands in for a mean until there is one.
void ResidencyMember::NoteMove(Nanos moving, bool typical) {
  moving = std::max<Nanos>(moving, 0);
  last_move = moving;
  const bool first = !measured || rough;
  if (first) mean_move = moving;
  if (!first && typical) mean_move += (moving - mean_move) / kMovesRemembered;
  rough = first && !typical;
  measured = true;
}

void ResidencyMember::Tell() {
  if (std::exchange(told, decided) == decided) return;
  if (!decided.runs) {
    ready_with.reset();
  } else if (!active) {
    ready_with = decided.target;  // it has that: nothing is loaded for idle ones
  } else if (ready_with) {
    ready_with = std::min(*ready_with, decided.target);  // memory that goes has to come back
  }
}

void TurnMeasure::Add(std::uint32_t weight, std::optional<Nanos> move) {
  ++turns_;
  weights_ += weight;
  least_ = std::min(least_, weight);
  most_ = std::max(most_, weight);
  if (!move) return;
  moves_ += static_cast<double>(*move);
  ++measured_;
}

double TurnMeasure::TimePerWeight(const ResidencyConfig& config) const {
  const double mean_weight = weights_ / turns_;
  const double move = measured_ > 0 ? moves_ / measured_ : 0;
  const double wanted = move * (1 - config.most_moving) / config.most_moving / mean_weight;
  return std::max(std::min(wanted, static_cast<double>(config.turn_max) / most_),
                  static_cast<double>(config.turn_min) / least_);
}

Nanos TurnMeasure::Length(const ResidencyConfig& config, double time_per_weight, std::uint32_t weight) {
  const double length = time_per_weight * weight;
  if (length >= static_cast<double>(config.turn_max)) return config.turn_max;
  return std::max(static_cast<Nanos>(length), config.turn_min);
}

void ResidencyTurns::Clear() {
  queue_.clear();
  classes_.clear();
}

void ResidencyTurns::Measure() {
  Sort();
  classes_.clear();
  for (auto first = queue_.begin(); first != queue_.end();) {
    const auto last = std::find_if(
        first, queue_.end(), [&](const ResidencyMember* member) { return member->priority != (*first)->priority; });
    MeasureClass(classes_.emplace_back(Class{.queue = {first, last}}));
    first = last;
  }
}

void ResidencyTurns::Enqueue(ResidencyMember& member) {
  member.place = next_place_++;
  member.had = member.had_before = 0;
  member.leads = member.kept = member.waited = false;
}

void ResidencyTurns::Restart() {
  for (ResidencyMember* member : queue_) {
    member->had = 0;
    member->leads = member->kept = member->waited = false;
  }
  Sort();
}

// In a class whose turn it is, those that run along with it come next: that changes with the turn only.
void ResidencyTurns::Sort() {
  std::ranges::sort(queue_, {}, [](const ResidencyMember* member) {
    return std::tuple(member->priority, !member->leads, !member->kept, member->place);
  });
}

// A round has the turns of those that take turns: members that only run along make it no longer, and move nothing.
void ResidencyTurns::MeasureClass(Class& members) const {
  const bool known = std::ranges::any_of(members.queue, &ResidencyMember::TakesTurns);
  TurnMeasure measure;
  for (const ResidencyMember* member : members.queue) {
    if (known && !member->TakesTurns()) continue;
    measure.Add(member->weight, member->measured ? std::optional(member->Move()) : std::nullopt);
  }
  members.time_per_weight = measure.TimePerWeight(config_);
}

Nanos ResidencyTurns::Length(const Class& members, const ResidencyMember& member) const {
  return TurnMeasure::Length(config_, members.time_per_weight, member.weight);
}

// Its turn is over when it had so much. Time that it had before it began to lead, along with others or until a higher
// class came, counts for half a turn at most: a shorter turn is not worth its move.
Nanos ResidencyTurns::TurnEnd(const Class& members, const ResidencyMember& leader) const {
  const Nanos length = Length(members, leader);
  return std::max(length, leader.had_before + std::max(length / 2, config_.turn_min));
}

Nanos ResidencyTurns::FirstLength() const { return Length(classes_.front(), *queue_.front()); }

Nanos ResidencyTurns::FirstTurn() const {
  return TurnEnd(classes_.front(), *queue_.front()) - queue_.front()->had_before;
}

bool ResidencyTurns::Waits(const Class& members) {
  return std::ranges::any_of(members.queue, [](const ResidencyMember* member) { return !member->chosen; });
}

ResidencyMember* ResidencyTurns::Leader(const Class& members) {
  const auto leader = std::ranges::find_if(members.queue, &ResidencyMember::leads);
  return leader == members.queue.end() ? nullptr : *leader;
}

// The end of one class's turn may make others wait: at most one turn of each class ends here.
void ResidencyTurns::Choose(std::uint64_t capacity) {
  if (std::ranges::any_of(queue_, [](const ResidencyMember* member) { return member->gang != GangTurn::kOpen; }))
    return ChooseByGangs(capacity);
  const auto rotate_all = [&] {
    bool rotated = false;
    for (Class& members : classes_) rotated |= Rotate(members);
    return rotated;
  };
  ChooseThoseThatFit(capacity);
  while (rotate_all()) {
    Sort();
    ChooseThoseThatFit(capacity);
  }
  for (Class& members : classes_) SettleTurn(members);
  Sort();
}

// An order over several GPUs has decided. One that it does not know yet runs if it fits beside those that have the
// turn.
void ResidencyTurns::ChooseByGangs(std::uint64_t capacity) {
  for (ResidencyMember* member : queue_) {
    member->chosen = member->gang == GangTurn::kHas;
    if (member->chosen) capacity -= std::min(member->demand, capacity);
  }
  for (ResidencyMember* member : queue_) {
    if (member->gang == GangTurn::kOpen && member->demand <= capacity) {
      member->chosen = true;
      capacity -= member->demand;
    }
    member->leads = false;
    member->kept = member->chosen;
    member->waited |= !member->chosen;
  }
  Sort();
}

void ResidencyTurns::ChooseThoseThatFit(std::uint64_t capacity) {
  for (ResidencyMember* member : queue_) {
    member->chosen = member->demand <= capacity || member == queue_.front();
    if (member->chosen) capacity -= std::min(member->demand, capacity);
  }
}

// Ends the turn of a class if it is over and another vGPU waits for it. Those that had their time go to the back.
bool ResidencyTurns::Rotate(Class& members) {
  ResidencyMember* leader = Leader(members);
  if (leader == nullptr || !leader->chosen || leader->had < TurnEnd(members, *leader) || !Waits(members)) return false;
  for (ResidencyMember* member : members.queue) {
    if (member == leader || (member->chosen && member->had >= Length(members, *member))) Enqueue(*member);
    member->kept = false;
  }
  return true;
}

// Makes the choice a turn: a new one, or the one that is under way.
void ResidencyTurns::SettleTurn(Class& members) {
  ResidencyMember* leader = nullptr;
  for (ResidencyMember* member : members.queue) {
    member->kept = member->chosen;
    if (member->chosen && leader == nullptr) {
      leader = member;
      if (!leader->leads) leader->had_before = leader->had;
      leader->leads = true;
      continue;
    }
    member->leads = false;
    if (member->chosen) continue;
    if (member->had >= Length(members, *member)) Enqueue(*member);
    member->waited = true;
  }
}

Nanos ResidencyTurns::NextEnd(Nanos now) const {
  Nanos next = kNever;
  for (const Class& members : classes_) {
    const ResidencyMember* leader = Leader(members);
    if (leader == nullptr || !leader->started || !Waits(members)) continue;
    next = std::min(next, now + TurnEnd(members, *leader) - leader->had);
  }
  return next;
}

}  // namespace tessera::sched
