#include "server/time/token_server.h"

#include <algorithm>

namespace tessera::server {
namespace {

// How long a process may be without work before it gives the token back: short where somebody may be waiting for it,
// long where only a message per pause would be gained.
constexpr Nanos kIdleGraceBounded = 300 * kMicrosecond;
constexpr Nanos kIdleGraceOpen = 5 * kMillisecond;

}  // namespace

// A vGPU's use of the token.
struct TokenState {
  enum class Phase { kNone, kHeld, kRevoked };
  sched::VgpuId vgpu;
  Phase phase = Phase::kNone;
  GateSetting setting;       // of the present grant
  bool shared = false;       // likewise: nobody waits, so all its processes may run at once
  bool short_queue = false;  // Shares::short_queue
  bool measured = false;     // Shares::measured
  Nanos work_ended = 0;      // latest end of work that a process reported since the grant
  std::vector<GateRecord*> gates;

  // While others wait, its processes take turns within the token: the GPU would switch between their contexts instead,
  // which costs 5 to 8 % of its time (docs/hardware-log.md).
  GateSetting SettingFor(const sched::Decision& decision, Nanos in_flight) const {
    if (decision.bounded || short_queue) return {wire::GateOrder::kBounded, in_flight, kIdleGraceBounded};
    return {wire::GateOrder::kOpen, 0, measured ? kIdleGraceBounded : kIdleGraceOpen};
  }

  // Held ones wish in vain.
  bool AnyWants() const {
    return std::any_of(gates.begin(), gates.end(), [](const GateRecord* gate) {
      return gate->state == GateRecord::State::kWanting && !gate->held;
    });
  }

  // A frozen process stands still however long the others wait for it.
  bool AnyDrains() const {
    return std::any_of(gates.begin(), gates.end(), [](const GateRecord* gate) {
      return gate->state == GateRecord::State::kDraining && !gate->held;
    });
  }

  bool Any(GateRecord::State state) const {
    return std::any_of(gates.begin(), gates.end(), [state](const GateRecord* gate) { return gate->state == state; });
  }
};

TokenServer::TokenServer(const sched::Config& config, Nanos in_flight) : scheduler_(config), in_flight_(in_flight) {}

TokenServer::~TokenServer() = default;

Result<void> TokenServer::Set(Id vgpu, const sched::Shares& shares, Nanos now) {
  if (!tokens_.contains(vgpu)) {
    if (auto added = scheduler_.Add(vgpu, shares); !added) return added;
    tokens_[vgpu] = std::make_unique<TokenState>(
        TokenState{.vgpu = vgpu, .short_queue = shares.short_queue, .measured = shares.measured});
    return {};
  }
  auto updated = scheduler_.Update(vgpu, shares, now);
  if (updated) {
    tokens_.at(vgpu)->short_queue = shares.short_queue;
    tokens_.at(vgpu)->measured = shares.measured;
  }
  Execute(now);
  return updated;
}

void TokenServer::Remove(Id vgpu, Nanos now) {
  auto found = tokens_.find(vgpu);
  if (found == tokens_.end()) return;
  for (GateRecord* gate : found->second->gates) {
    gate->page.Give({});
    gate->state = GateRecord::State::kParked;
    gate->token = nullptr;
  }
  tokens_.erase(found);
  scheduler_.Remove(vgpu, now);
  Execute(now);
}

void TokenServer::Join(Id vgpu, GateRecord& gate, Nanos) {
  gate.token = tokens_.at(vgpu).get();
  gate.token->gates.push_back(&gate);
}

void TokenServer::Abandon(Nanos) {
  Seal();
  for (const auto& [id, token] : tokens_) {
    for (GateRecord* gate : token->gates) {
      gate->page.Give({});
      gate->state = GateRecord::State::kParked;
      gate->token = nullptr;
    }
    token->gates.clear();
  }
}

void TokenServer::Leave(GateRecord& gate, Nanos now) {
  if (!gate.token) return;
  std::erase(gate.token->gates, &gate);
  Stopped(gate, now, now);
  gate.token = nullptr;
  Execute(now);
}

void TokenServer::Wants(GateRecord& gate, Nanos now, bool waits) {
  if (!gate.token) return;
  TokenState& token = *gate.token;
  // A process whose token was granted and revoked before it woke up never left its wait: nothing is queued.
  if (waits && gate.state == GateRecord::State::kDraining) Stopped(gate, now, now);
  const bool held = token.phase == TokenState::Phase::kHeld;
  const bool its_turn =
      gate.state == GateRecord::State::kRunning || token.shared || !token.Any(GateRecord::State::kRunning);
  if (held && its_turn && !gate.held) {
    Open(gate, now);
  } else {
    gate.Wants(now);
    if (!held && !gate.held) scheduler_.Wants(token.vgpu, now);
  }
  Execute(now);
  if (waits || gate.ungated || gate.state != GateRecord::State::kWanting) return;
  // Its gate is closed, but it works: it says when that has ended, and asks then.
  gate.state = GateRecord::State::kDraining;
  gate.closing_epoch = gate.page.Epoch();
}

void TokenServer::Idle(GateRecord& gate, Nanos now, Nanos since) {
  if (!gate.token) return;
  // Closed again, so that an order that was on its way while the process parked is no answer to its next Wants.
  if (gate.state == GateRecord::State::kRunning) gate.page.Give({}, SharedPage::Bell::kQuiet);
  Stopped(gate, now, since);
  Execute(now);
}

void TokenServer::Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) {
  if (!gate.token || (gate.state == GateRecord::State::kDraining && gate.closing_epoch != epoch)) return;
  // Not draining: it met the closed gate that every page begins with while work of before was on its way.
  Stopped(gate, now, drained_at);
  Execute(now);
}

void TokenServer::Hold(GateRecord& gate, bool held, Nanos now) {
  gate.held = held;
  if (!gate.token) return;
  if (held && gate.state == GateRecord::State::kRunning) {
    gate.Close();
    if (gate.token->phase == TokenState::Phase::kHeld && !gate.token->Any(GateRecord::State::kRunning))
      OpenNext(*gate.token, now);
    Settle(*gate.token, now);
  } else if (held && gate.state == GateRecord::State::kDraining) {
    Settle(*gate.token, now);
  } else if (!held && gate.state == GateRecord::State::kWanting) {
    Wants(gate, now, true);
  }
  Execute(now);
}

void TokenServer::Advance(Nanos now) {
  scheduler_.Advance(now);
  Execute(now);
}

TimeServer::State TokenServer::StateOf(Id vgpu) const {
  const auto found = tokens_.find(vgpu);
  if (found == tokens_.end()) return {};
  const TokenState& token = *found->second;
  if (token.phase == TokenState::Phase::kHeld) return {.standing = Standing::kRunning};
  if (!token.AnyWants()) return {};
  return {.standing = Standing::kWaiting, .why = scheduler_.AtLimit(vgpu) ? WaitReason::kLimit : WaitReason::kTurn};
}

void TokenServer::Open(GateRecord& gate, Nanos now) {
  if (gate.state != GateRecord::State::kRunning) gate.opened_at = now;
  gate.Runs(now);
  gate.page.Give(gate.token->setting);
}

// `gate` has nothing queued since `at`, as it says.
void TokenServer::Stopped(GateRecord& gate, Nanos now, Nanos at) {
  TokenState& token = *gate.token;
  const bool had_work = gate.state == GateRecord::State::kRunning || gate.state == GateRecord::State::kDraining;
  if (had_work) token.work_ended = std::max(token.work_ended, std::clamp(at, gate.opened_at, now));
  gate.state = GateRecord::State::kParked;
  if (!had_work) return;
  if (token.phase == TokenState::Phase::kHeld && !token.Any(GateRecord::State::kRunning)) OpenNext(token, now);
  Settle(token, now);
}

// Opens the gate of the process that has waited longest for its turn within the token.
void TokenServer::OpenNext(TokenState& token, Nanos now) {
  const auto next = std::find_if(token.gates.begin(), token.gates.end(), [](const GateRecord* gate) {
    return gate->state == GateRecord::State::kWanting && !gate->held;
  });
  if (next == token.gates.end()) return;
  GateRecord& gate = **next;
  std::rotate(next, next + 1, token.gates.end());  // behind the others, for the next time
  Open(gate, now);
}

// Hands the token back when the last process of the vGPU is done with it.
void TokenServer::Settle(TokenState& token, Nanos now) {
  if (token.phase == TokenState::Phase::kHeld && !token.Any(GateRecord::State::kRunning)) {
    token.phase = TokenState::Phase::kNone;
    scheduler_.Idle(token.vgpu, now, token.work_ended);
  } else if (token.phase == TokenState::Phase::kRevoked && !token.AnyDrains()) {
    token.phase = TokenState::Phase::kNone;
    scheduler_.Released(token.vgpu, now, token.work_ended);
    if (token.AnyWants()) scheduler_.Wants(token.vgpu, now);
  }
}

void TokenServer::Grant(TokenState& token, const sched::Decision& decision, Nanos now) {
  const GateSetting setting = token.SettingFor(decision, in_flight_);
  const bool same = setting == token.setting && token.shared == !decision.bounded;
  if (token.phase == TokenState::Phase::kHeld && same) return;  // only the term is another
  if (token.phase != TokenState::Phase::kHeld) token.work_ended = now;
  token.phase = TokenState::Phase::kHeld;
  token.setting = setting;
  token.shared = !decision.bounded;
  for (GateRecord* gate : token.gates) {
    if (gate->state == GateRecord::State::kRunning ||
        (gate->state == GateRecord::State::kWanting && !gate->held && token.shared))
      Open(*gate, now);
  }
  if (!token.Any(GateRecord::State::kRunning)) OpenNext(token, now);
  Settle(token, now);  // who wanted it may have died since
}

void TokenServer::Revoke(TokenState& token, Nanos now) {
  if (token.phase != TokenState::Phase::kHeld) return;
  token.phase = TokenState::Phase::kRevoked;
  for (GateRecord* gate : token.gates) {
    if (gate->state == GateRecord::State::kRunning) gate->Close();
  }
  Settle(token, now);
}

void TokenServer::Execute(Nanos now) {
  if (Sealed()) return;
  for (auto decisions = scheduler_.TakeDecisions(); !decisions.empty(); decisions = scheduler_.TakeDecisions()) {
    for (const sched::Decision& decision : decisions) {
      auto found = tokens_.find(decision.vgpu);
      if (found == tokens_.end()) continue;
      if (decision.kind == sched::Decision::Kind::kGrant) {
        Grant(*found->second, decision, now);
      } else {
        Revoke(*found->second, now);
      }
    }
  }
}

}  // namespace tessera::server
