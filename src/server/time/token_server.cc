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
  Order order;           // of the present grant
  Nanos work_ended = 0;  // latest end of work that a process reported since the grant
  std::vector<GateRecord*> gates;

  // Whether all its processes may run at once. While the queues are bounded they take turns within the token: the GPU
  // would switch between their contexts instead, which costs 5 to 8 % of its time (docs/hardware-log.md).
  bool Shared() const { return order.gate == wire::GateOrder::kOpen; }

  // Held ones wish in vain.
  bool AnyWants() const {
    return std::any_of(gates.begin(), gates.end(), [](const GateRecord* gate) {
      return gate->state == GateRecord::State::kWanting && !gate->held;
    });
  }

  // What is frozen stands still however long the others wait for it.
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
  if (!turns_.contains(vgpu)) {
    if (auto added = scheduler_.Add(vgpu, shares); !added) return added;
    turns_[vgpu] = std::make_unique<TokenState>(TokenState{.vgpu = vgpu});
    return {};
  }
  auto updated = scheduler_.Update(vgpu, shares, now);
  Execute(now);
  return updated;
}

void TokenServer::Remove(Id vgpu, Nanos now) {
  auto found = turns_.find(vgpu);
  if (found == turns_.end()) return;
  for (GateRecord* gate : found->second->gates) {
    gate->page.Give({});
    gate->state = GateRecord::State::kParked;
    gate->turn = nullptr;
  }
  turns_.erase(found);
  scheduler_.Remove(vgpu, now);
  Execute(now);
}

void TokenServer::Join(Id vgpu, GateRecord& gate, Nanos) {
  gate.turn = turns_.at(vgpu).get();
  gate.turn->gates.push_back(&gate);
}

void TokenServer::Abandon(Nanos) {
  Seal();
  for (const auto& [id, turn] : turns_) {
    for (GateRecord* gate : turn->gates) {
      gate->page.Give({});
      gate->state = GateRecord::State::kParked;
      gate->turn = nullptr;
    }
    turn->gates.clear();
  }
}

void TokenServer::Leave(GateRecord& gate, Nanos now) {
  if (!gate.turn) return;
  std::erase(gate.turn->gates, &gate);
  Stopped(gate, now, now);
  gate.turn = nullptr;
  Execute(now);
}

void TokenServer::Wants(GateRecord& gate, Nanos now, bool waits) {
  if (!gate.turn) return;
  TokenState& turn = *gate.turn;
  // A process whose token was granted and revoked before it woke up never left its wait: nothing is queued.
  if (waits && gate.state == GateRecord::State::kDraining) Stopped(gate, now, now);
  const bool held = turn.phase == TokenState::Phase::kHeld;
  const bool its_turn =
      gate.state == GateRecord::State::kRunning || turn.Shared() || !turn.Any(GateRecord::State::kRunning);
  if (held && its_turn && !gate.held) {
    Open(gate, now);
  } else {
    gate.Wants(now);
    if (!held && !gate.held) scheduler_.Wants(turn.vgpu, now);
  }
  Execute(now);
  if (waits || gate.ungated || gate.state != GateRecord::State::kWanting) return;
  // Its gate is closed, but it works: it says when that has ended, and asks then.
  gate.state = GateRecord::State::kDraining;
  gate.closing_epoch = gate.page.Epoch();
}

void TokenServer::Idle(GateRecord& gate, Nanos now, Nanos since) {
  if (!gate.turn) return;
  // Closed again, so that an order that was on its way while the process parked is no answer to its next Wants.
  if (gate.state == GateRecord::State::kRunning) gate.page.Give({}, SharedPage::Bell::kQuiet);
  Stopped(gate, now, since);
  Execute(now);
}

void TokenServer::Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) {
  if (!gate.turn || (gate.state == GateRecord::State::kDraining && gate.closing_epoch != epoch)) return;
  // Not draining: it met the closed gate that every page begins with while work of before was on its way.
  Stopped(gate, now, drained_at);
  Execute(now);
}

void TokenServer::Hold(GateRecord& gate, bool held, Nanos now) {
  gate.held = held;
  if (!gate.turn) return;
  if (held && gate.state == GateRecord::State::kRunning) {
    Close(gate);
    if (gate.turn->phase == TokenState::Phase::kHeld && !gate.turn->Any(GateRecord::State::kRunning))
      OpenNext(*gate.turn, now);
    Settle(*gate.turn, now);
  } else if (held && gate.state == GateRecord::State::kDraining) {
    Settle(*gate.turn, now);
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
  const auto found = turns_.find(vgpu);
  if (found == turns_.end()) return {};
  const TokenState& turn = *found->second;
  if (turn.phase == TokenState::Phase::kHeld) return {.standing = Standing::kRunning};
  if (!turn.AnyWants()) return {};
  return {.standing = Standing::kWaiting, .why = scheduler_.AtLimit(vgpu) ? WaitReason::kLimit : WaitReason::kTurn};
}

void TokenServer::Open(GateRecord& gate, Nanos now) {
  if (gate.state != GateRecord::State::kRunning) gate.opened_at = now;
  gate.Runs(now);
  gate.page.Give(gate.turn->order);
}

// What it has queued drains; it says when that is done.
void TokenServer::Close(GateRecord& gate) {
  gate.page.Give({});
  gate.state = GateRecord::State::kDraining;
  gate.closing_epoch = gate.page.Epoch();
}

// `gate` has nothing queued since `at`, as it says.
void TokenServer::Stopped(GateRecord& gate, Nanos now, Nanos at) {
  TokenState& turn = *gate.turn;
  const bool had_work = gate.state == GateRecord::State::kRunning || gate.state == GateRecord::State::kDraining;
  if (had_work) turn.work_ended = std::max(turn.work_ended, std::clamp(at, gate.opened_at, now));
  gate.state = GateRecord::State::kParked;
  if (!had_work) return;
  if (turn.phase == TokenState::Phase::kHeld && !turn.Any(GateRecord::State::kRunning)) OpenNext(turn, now);
  Settle(turn, now);
}

// Opens the gate of the process that has waited longest for its turn within the token.
void TokenServer::OpenNext(TokenState& turn, Nanos now) {
  const auto next = std::find_if(turn.gates.begin(), turn.gates.end(), [](const GateRecord* gate) {
    return gate->state == GateRecord::State::kWanting && !gate->held;
  });
  if (next == turn.gates.end()) return;
  GateRecord& gate = **next;
  std::rotate(next, next + 1, turn.gates.end());  // behind the others, for the next time
  Open(gate, now);
}

// Hands the token back when the last process of the vGPU is done with it.
void TokenServer::Settle(TokenState& turn, Nanos now) {
  if (turn.phase == TokenState::Phase::kHeld && !turn.Any(GateRecord::State::kRunning)) {
    turn.phase = TokenState::Phase::kNone;
    scheduler_.Idle(turn.vgpu, now, turn.work_ended);
  } else if (turn.phase == TokenState::Phase::kRevoked && !turn.AnyDrains()) {
    turn.phase = TokenState::Phase::kNone;
    scheduler_.Released(turn.vgpu, now, turn.work_ended);
    if (turn.AnyWants()) scheduler_.Wants(turn.vgpu, now);
  }
}

void TokenServer::Grant(TokenState& turn, const sched::Decision& decision, Nanos now) {
  const Order order = decision.bounded ? Order{wire::GateOrder::kBounded, in_flight_, kIdleGraceBounded}
                                       : Order{wire::GateOrder::kOpen, 0, kIdleGraceOpen};
  if (turn.phase == TokenState::Phase::kHeld && order == turn.order) return;  // only the term is another
  if (turn.phase != TokenState::Phase::kHeld) turn.work_ended = now;
  turn.phase = TokenState::Phase::kHeld;
  turn.order = order;
  for (GateRecord* gate : turn.gates) {
    if (gate->state == GateRecord::State::kRunning ||
        (gate->state == GateRecord::State::kWanting && !gate->held && turn.Shared()))
      Open(*gate, now);
  }
  if (!turn.Any(GateRecord::State::kRunning)) OpenNext(turn, now);
  Settle(turn, now);  // who wanted it may have died since
}

void TokenServer::Revoke(TokenState& turn, Nanos now) {
  if (turn.phase != TokenState::Phase::kHeld) return;
  turn.phase = TokenState::Phase::kRevoked;
  for (GateRecord* gate : turn.gates) {
    if (gate->state == GateRecord::State::kRunning) Close(*gate);
  }
  Settle(turn, now);
}

void TokenServer::Execute(Nanos now) {
  if (Sealed()) return;
  for (auto decisions = scheduler_.TakeDecisions(); !decisions.empty(); decisions = scheduler_.TakeDecisions()) {
    for (const sched::Decision& decision : decisions) {
      auto found = turns_.find(decision.vgpu);
      if (found == turns_.end()) continue;
      if (decision.kind == sched::Decision::Kind::kGrant) {
        Grant(*found->second, decision, now);
      } else {
        Revoke(*found->second, now);
      }
    }
  }
}

}  // namespace tessera::server
