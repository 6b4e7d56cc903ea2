#include "plan/time/steered_time.h"

#include <algorithm>
#include <utility>

namespace tessera::plan {

SteeredTime::SteeredTime(const GpuSpec& spec, std::uint64_t seed, Violations& violations)
    : costs_(spec.steering_costs),
      config_(spec.steering),
      steering_(spec.steering),
      random_(seed),
      violations_(violations),
      timer_(costs_.lateness),
      hardware_(costs_) {}

Result<void> SteeredTime::Add(Part& part, Nanos now) {
  auto shares = goals_.Set(part, part.shares, now);
  if (!shares) return std::unexpected(shares.error());
  if (auto added = steering_.Add(part.vgpu, *shares, now); !added) {
    goals_.Remove(part, now);
    return added;
  }
  clients_[part.vgpu] = {.part = &part, .grace = config_.least_grace};
  groups_[part.vgpu] = {.part = &part};
  Obey(now);
  return {};
}

Result<void> SteeredTime::Update(Part& part, const sched::Shares& shares, Nanos now) {
  const auto with_terms = goals_.Set(part, shares, now);
  if (!with_terms) return std::unexpected(with_terms.error());
  auto updated = steering_.Update(part.vgpu, *with_terms, now);
  if (!updated) (void)goals_.Set(part, part.shares, now);  // as before, which fitted
  Obey(now);
  return updated;
}

void SteeredTime::Remove(Part& part, Nanos now) {
  std::erase_if(effects_, [&](const auto& entry) { return entry.second.vgpu == part.vgpu; });
  hardware_.Remove(part.vgpu);
  groups_.erase(part.vgpu);
  clients_.erase(part.vgpu);
  goals_.Remove(part, now);
  steering_.Remove(part.vgpu, now);
  Obey(now);
}

void SteeredTime::Submits(Part& part, Nanos now) {
  Client& client = clients_.at(part.vgpu);
  client.idle_at = kNever;
  PassGate(client);
  if (!std::exchange(client.said_active, true)) Tell(client, Effect::Kind::kActive, 0, now);
}

void SteeredTime::Done(Part& part, Nanos now) {
  Client& client = clients_.at(part.vgpu);
  groups_.at(part.vgpu).on_gpu = false;
  client.idle_since = now;
  client.idle_at = now + client.grace;
}

void SteeredTime::Told(Part& part, Nanos latency, Nanos now) {
  Tell(clients_.at(part.vgpu), Effect::Kind::kLatency, latency, now);
}

// Work of a program whose gate is open goes to the GPU, where only a freeze stops it.
void SteeredTime::PassGate(Client& client) {
  const Part& part = *client.part;
  if (part.work > 0 && !client.stopped && !part.held) groups_.at(part.vgpu).on_gpu = true;
}

void SteeredTime::SetFrozen(Client& client) {
  groups_.at(client.part->vgpu).frozen = client.policy_frozen || client.memory_frozen;
}

// Messages arrive in order.
void SteeredTime::Tell(Client& client, Effect::Kind kind, Nanos value, Nanos now) {
  client.told_at = std::max(client.told_at, now + random_.UpTo(costs_.message));
  effects_.emplace(client.told_at, Effect{kind, client.part->vgpu, value});
}

void SteeredTime::Report(Client& client, Nanos now, Nanos idle_since) {
  const bool counts = client.active && !client.part->held;
  if (std::exchange(client.counts, counts) == counts) return;
  if (counts) {
    steering_.Active(client.part->vgpu, now);
  } else {
    steering_.Idle(client.part->vgpu, now, idle_since);
  }
  Obey(now);
}

// The program's gate closes, and what it has on the GPU is frozen; or back.
void SteeredTime::Hold(Part& part, Nanos now) {
  Client& client = clients_.at(part.vgpu);
  Report(client, now, now);
  if (part.held && groups_.at(part.vgpu).on_gpu && !client.hold_ordered) {
    client.hold_ordered = true;
    driver_free_ = Call(costs_.freeze, now, driver_free_);
    effects_.emplace(driver_free_, Effect{Effect::Kind::kHold, part.vgpu});
  } else if (!part.held && client.hold_ordered) {
    client.hold_ordered = false;
    driver_free_ = Call(costs_.thaw, now, driver_free_);
    effects_.emplace(driver_free_, Effect{Effect::Kind::kLetGo, part.vgpu});
  } else {
    PassGate(client);
  }
}

bool SteeredTime::Still(const Part& part) const {
  return part.held && (clients_.at(part.vgpu).memory_frozen || !groups_.at(part.vgpu).on_gpu);
}

Nanos SteeredTime::NextEvent() const {
  Nanos next = std::min({timer_.RingsAt(), hardware_.NextEvent(), goals_.NextDeadline()});
  if (!effects_.empty()) next = std::min(next, effects_.begin()->first);
  for (const auto& [_, client] : clients_) next = std::min(next, client.idle_at);
  return next;
}

void SteeredTime::Step(Nanos now) {
  if (timer_.Rings(now)) {
    steering_.Advance(now);
    violations_.Require(steering_.NextDeadline() > now, "a deadline in the past", now);
    Obey(now);
  }
  while (!effects_.empty() && effects_.begin()->first <= now) {
    const Effect effect = effects_.extract(effects_.begin()).mapped();
    Apply(effect, now);
  }
  if (goals_.NextDeadline() <= now) {
    goals_.Advance(now);
    Obey(now);
  }
  for (auto& [_, client] : clients_) {
    if (client.idle_at > now) continue;
    client.idle_at = kNever;
    client.said_active = false;
    Tell(client, Effect::Kind::kIdle, client.idle_since, now);
  }
}

void SteeredTime::Apply(const Effect& effect, Nanos now) {
  Client& client = clients_.at(effect.vgpu);
  switch (effect.kind) {
    case Effect::Kind::kActive:
      client.active = true;
      goals_.Began(*client.part, now);
      return Report(client, now, now);
    case Effect::Kind::kIdle:
      client.active = false;
      goals_.Ended(*client.part, effect.value, now);
      return Report(client, now, effect.value);
    case Effect::Kind::kLatency:
      goals_.Told(*client.part, effect.value, now);
      return Obey(now);
    case Effect::Kind::kFreeze:
    case Effect::Kind::kThaw:
      client.policy_frozen = effect.kind == Effect::Kind::kFreeze;
      break;
    case Effect::Kind::kHold:
    case Effect::Kind::kLetGo:
      client.memory_frozen = effect.kind == Effect::Kind::kHold;
      break;
    case Effect::Kind::kSlice:
      groups_.at(effect.vgpu).slice = effect.value;
      return;
  }
  SetFrozen(client);
  PassGate(client);
}

void SteeredTime::Settle(Nanos now) {
  hardware_.Dispatch(groups_, now);
  timer_.Set(steering_.NextDeadline(), now, random_);
}

// As the daemon does after each event: first all freezes, then all thaws, then slices. Gates close and open at once.
void SteeredTime::Obey(Nanos now) {
  goals_.Tell(steering_, now);
  const auto orders = steering_.TakeOrders();
  Nanos done = std::max(now, driver_free_);
  done = StopOrGo(orders, Kind::kStop, now, done);
  done = StopOrGo(orders, Kind::kGo, now, done);
  for (const sched::Order& order : orders) {
    ++orders_;
    Client& client = clients_.at(order.vgpu);
    if (order.kind == Kind::kGrace) {
      ++graces_;
      violations_.Require(client.grace_order != order.time, "the same grace again", now);
      violations_.Require(order.time >= config_.least_grace && order.time <= config_.most_grace, "a grace out of range",
                          now);
      client.grace = client.grace_order = order.time;
    } else if (order.kind == Kind::kSlice) {
      violations_.Require(order.time > 0, "an order for a slice of no time", now);
      done = Call(costs_.set_slice, now, done);
      effects_.emplace(done, Effect{Effect::Kind::kSlice, order.vgpu, order.time});
    }
  }
  driver_free_ = done;
}

Nanos SteeredTime::StopOrGo(const std::vector<sched::Order>& orders, Kind kind, Nanos now, Nanos done) {
  const bool stop = kind == Kind::kStop;
  std::uint32_t in_call = 0;
  for (const sched::Order& order : orders) {
    if (order.kind != kind) continue;
    Client& client = clients_.at(order.vgpu);
    violations_.Require(client.stopped != stop, stop ? "a second stop" : "a second go", now);
    client.stopped = stop;
    if (stop ? !groups_.at(order.vgpu).on_gpu : !client.freeze_ordered) {
      PassGate(client);
      continue;
    }
    client.freeze_ordered = stop;
    if (in_call++ % config_.vgpus_per_call == 0) done = Call(stop ? costs_.freeze : costs_.thaw, now, done);
    effects_.emplace(done, Effect{stop ? Effect::Kind::kFreeze : Effect::Kind::kThaw, order.vgpu});
  }
  return done;
}

Nanos SteeredTime::Call(Nanos takes, Nanos now, Nanos after) {
  ++call_count_;
  while (!calls_.empty() && calls_.front() <= now - kSecond) calls_.pop_front();
  calls_.push_back(now);
  most_calls_ = std::max(most_calls_, static_cast<std::int64_t>(calls_.size()));
  return std::max(now, after) + takes;
}

std::optional<sched::Usage> SteeredTime::Billed(const Part& part, Nanos now) const {
  return steering_.UsageOf(part.vgpu, now);
}

void SteeredTime::Count(GpuFigures& figures) const {
  figures.switches = hardware_.switches();
  figures.decisions = orders_;
  figures.graces = graces_;
  figures.calls = call_count_;
  figures.most_calls = most_calls_;
}

void SteeredTime::Reset() {
  hardware_.Reset();
  calls_.clear();
  call_count_ = most_calls_ = orders_ = graces_ = 0;
}

}  // namespace tessera::plan
