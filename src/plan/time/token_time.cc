#include "plan/time/token_time.h"

#include <algorithm>

namespace tessera::plan {

TokenTime::TokenTime(const GpuSpec& spec, std::uint64_t seed, Violations& violations)
    : costs_(spec.token_costs),
      config_(spec.tokens),
      scheduler_(spec.tokens),
      random_(seed),
      violations_(violations),
      timer_(costs_.lateness) {}

Result<void> TokenTime::Add(Part& part, Nanos) {
  if (auto added = scheduler_.Add(part.vgpu, part.shares); !added) return added;
  clients_[part.vgpu] = {.part = &part};
  return {};
}

Result<void> TokenTime::Update(Part& part, const sched::Shares& shares, Nanos now) {
  if (auto updated = scheduler_.Update(part.vgpu, shares, now); !updated) return updated;
  Obey(now);
  return {};
}

void TokenTime::Remove(Part& part, Nanos now) {
  clients_.erase(part.vgpu);
  holders_.erase(part.vgpu);
  scheduler_.Remove(part.vgpu, now);
  Obey(now);
}

void TokenTime::Submits(Part& part, Nanos now) {
  Client& client = clients_.at(part.vgpu);
  if (client.state == State::kLooksIdle) {
    client.state = State::kRuns;
    client.at = kNever;
  } else if (client.state == State::kIdle) {
    Want(client, now);
  }
}

void TokenTime::Want(Client& client, Nanos now) {
  client.at = kNever;
  if (client.part->held) {
    client.state = State::kHeldBack;
    return;
  }
  client.state = State::kWaits;
  scheduler_.Wants(client.part->vgpu, now);
  Obey(now);
}

void TokenTime::Done(Part& part, Nanos now) {
  Client& client = clients_.at(part.vgpu);
  if (client.state == State::kRuns) {
    client.state = State::kLooksIdle;
    client.done_at = now;
    client.at = now + costs_.idle_grace;
  } else {
    Drained(client, now);
  }
}

// The client's work in flight has ended.
void TokenTime::Drained(Client& client, Nanos now) {
  Part& part = *client.part;
  const State before = client.state;
  part.in_flight = kNever;
  client.state = part.work > 0 ? State::kSyncs : State::kIdle;
  client.at = part.work > 0 ? now + part.sync : kNever;
  if (before == State::kDrains) holders_.erase(part.vgpu);
  if (before == State::kDrains || before == State::kStraggles) scheduler_.Released(part.vgpu, now, now);
  if (part.work > 0 && part.sync == 0) return Want(client, now);
  Obey(now);
}

void TokenTime::SayIdle(Client& client, Nanos now, Nanos since) {
  holders_.erase(client.part->vgpu);
  scheduler_.Idle(client.part->vgpu, now, since);
  Obey(now);
}

Nanos TokenTime::CloseGate(Part& part) { return std::min(random_.UpTo(part.queue), part.work); }

// As the daemon does: it takes the token back, and a wish that stands is answered when the grant comes.
void TokenTime::Hold(Part& part, Nanos now) {
  Client& client = clients_.at(part.vgpu);
  if (!part.held) {
    if (client.state == State::kHeldBack) Want(client, now);
    return;
  }
  switch (client.state) {
    case State::kRuns:
      part.in_flight = CloseGate(part);
      client.state = part.in_flight > 0 ? State::kLeaves : State::kHeldBack;
      if (part.in_flight == 0) part.in_flight = kNever;
      return SayIdle(client, now, now);
    case State::kLooksIdle:
      client.state = State::kIdle;
      client.at = kNever;
      return SayIdle(client, now, client.done_at);
    case State::kDrains:
    case State::kStraggles:
      if (client.state == State::kDrains) holders_.erase(part.vgpu);
      client.state = State::kLeaves;
      scheduler_.Released(part.vgpu, now, now);
      return Obey(now);
    case State::kIdle:
    case State::kHeldBack:
    case State::kWaits:
    case State::kLeaves:
    case State::kSyncs:
      return;
  }
}

bool TokenTime::Still(const Part& part) const {
  const State state = clients_.at(part.vgpu).state;
  return part.held &&
         (state == State::kIdle || state == State::kHeldBack || state == State::kWaits || state == State::kSyncs);
}

bool TokenTime::Active(const Part& part) const {
  const State state = clients_.at(part.vgpu).state;
  return state != State::kIdle && state != State::kSyncs;
}

Nanos TokenTime::NextEvent() const {
  Nanos next = timer_.RingsAt();
  for (const auto& [_, client] : clients_) {
    next = std::min(next, client.at);
    if (client.state == State::kRuns && client.opens_at > now_) next = std::min(next, client.opens_at);
  }
  return next;
}

void TokenTime::Step(Nanos now) {
  if (timer_.Rings(now)) {
    scheduler_.Advance(now);
    violations_.Require(scheduler_.NextDeadline() >= now, "a deadline in the past", now);
    Obey(now);
  }
  for (auto& [_, client] : clients_) {
    if (client.part->in_flight == 0 && client.part->work > 0) Drained(client, now);
    if (client.at > now) continue;
    if (client.state == State::kSyncs) {
      Want(client, now);
    } else if (client.state == State::kLooksIdle) {
      client.state = State::kIdle;
      client.at = kNever;
      SayIdle(client, now, client.done_at);
    }
  }
}

void TokenTime::Obey(Nanos now) {
  for (auto decisions = scheduler_.TakeDecisions(); !decisions.empty(); decisions = scheduler_.TakeDecisions()) {
    for (const sched::Decision& decision : decisions) {
      ++decisions_;
      Client& client = clients_.at(decision.vgpu);
      if (decision.kind == sched::Decision::Kind::kRevoke) {
        ObeyRevoke(client, now);
      } else if (!holders_.contains(decision.vgpu)) {
        ObeyGrant(decision, client, now);
      }
    }
  }
}

std::pair<std::uint32_t, sched::VgpuId> TokenTime::EntityOf(const Part& part) {
  const std::uint32_t space = part.shares.space.number;
  return {space, space == 0 ? part.vgpu : 0};
}

// Holders beside which the vGPU cannot run go on only because their work in flight takes too long.
void TokenTime::MakeStraggle(const sched::Decision& grant, const Client& client, Nanos now) {
  double taken = client.part->shares.space.taken_pct();
  for (const sched::VgpuId holder : holders_) {
    const Part& part = *clients_.at(holder).part;
    if (EntityOf(part) == EntityOf(*client.part)) taken += part.shares.space.taken_pct();
  }
  constexpr double kAll = 100.001;  // parts of SMs are rounded
  const bool all_fit = taken <= kAll;
  for (auto holder = holders_.begin(); holder != holders_.end();) {
    Client& other = clients_.at(*holder);
    const bool beside = all_fit && EntityOf(*other.part) == EntityOf(*client.part);
    const bool may_go_on = other.state == State::kDrains && now >= other.revoked_at + config_.drain_timeout;
    violations_.Require(beside || may_go_on || *holder == grant.vgpu, "two holders", now);
    if (beside) {
      ++holder;
      continue;
    }
    other.state = State::kStraggles;
    holder = holders_.erase(holder);
  }
}

void TokenTime::ObeyGrant(const sched::Decision& decision, Client& client, Nanos now) {
  MakeStraggle(decision, client, now);
  violations_.Require(decision.expires > now, "a grant that has expired", now);
  violations_.Require(client.state == State::kWaits, "a grant that was not asked for", now);
  if (client.part->held) {
    client.state = State::kHeldBack;
    scheduler_.Idle(decision.vgpu, now, now);
    return;
  }
  holders_.insert(decision.vgpu);
  const bool switches = last_ != decision.vgpu;
  switches_ += switches ? 1 : 0;
  last_ = decision.vgpu;
  client.opens_at = now + (switches ? costs_.hand_over : 0);
  client.state = State::kRuns;
}

void TokenTime::ObeyRevoke(Client& client, Nanos now) {
  Part& part = *client.part;
  violations_.Require(holders_.contains(part.vgpu), "a revoke of a vGPU that does not have the token", now);
  if (client.state == State::kLooksIdle) {
    holders_.erase(part.vgpu);
    client.state = State::kIdle;
    client.at = kNever;
    scheduler_.Released(part.vgpu, now, client.done_at);
    return;
  }
  client.state = State::kDrains;
  client.revoked_at = now;
  part.in_flight = CloseGate(part);
  if (part.in_flight == 0) Drained(client, now);
}

bool TokenTime::Switching(Nanos now) const {
  return !holders_.empty() &&
         std::ranges::all_of(holders_, [&](sched::VgpuId holder) { return now < clients_.at(holder).opens_at; });
}

// Entities divide the time; within a space each has its SMs.
void TokenTime::Settle(Nanos now) {
  now_ = now;
  const auto executes = [&](const Client& client) {
    const bool runs = client.state == State::kRuns && now >= client.opens_at;
    return client.part->work > 0 && (runs || client.part->in_flight != kNever);
  };
  executing_.clear();
  for (const auto& [_, client] : clients_) {
    if (executes(client)) executing_.push_back(EntityOf(*client.part));
    const bool may_run = client.state == State::kWaits && !client.part->held && client.part->shares.limit_pct == 100;
    violations_.Require(!holders_.empty() || !may_run, "the GPU idles while a vGPU waits", now);
  }
  std::ranges::sort(executing_);
  const auto others = std::ranges::unique(executing_);
  executing_.erase(others.begin(), others.end());
  const auto entities = static_cast<std::uint32_t>(executing_.size());
  for (auto& [_, client] : clients_) client.part->among = executes(client) ? entities : 0;
  timer_.Set(scheduler_.NextDeadline(), now, random_);
}

std::optional<sched::Usage> TokenTime::Billed(const Part& part, Nanos now) const {
  return scheduler_.UsageOf(part.vgpu, now);
}

void TokenTime::Count(GpuFigures& figures) const {
  figures.switches = switches_;
  figures.decisions = decisions_;
}

}  // namespace tessera::plan
