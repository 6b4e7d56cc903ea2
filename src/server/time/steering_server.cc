#include "server/time/steering_server.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr Nanos kFirstGrace = 5 * kMillisecond;
// Processes of a vGPU share its slice; as they come and go the parts change, but not more often than this.
constexpr Nanos kSlicesEvery = 100 * kMillisecond;
constexpr double kSameSlice = 0.02;
// What the driver gives who was given nothing.
constexpr Nanos kDriverSlice = 2 * kMillisecond;
// Between a thaw and the freeze by which a limit is held, each process of a vGPU should have as many turns.
constexpr Nanos kTurnsInAQuota = 2;

}  // namespace

// A vGPU's use of the GPU.
struct SteeringState {
  sched::VgpuId vgpu;
  bool stopped = false;
  Nanos stopped_at = 0;  // 0: since then it went on
  bool active = false;   // as the scheduler was told
  Nanos slice = 0;       // of all its processes together; 0: it had no competitor yet
  Nanos quota = 0;       // what its limit lets it run in a window
  Nanos grace = kFirstGrace;
  std::vector<GateRecord*> gates;

  bool Active() const {
    return std::ranges::any_of(
        gates, [](const GateRecord* gate) { return !gate->held && gate->state != GateRecord::State::kParked; });
  }
  std::ptrdiff_t Running() const {
    return std::ranges::count_if(gates,
                                 [](const GateRecord* gate) { return gate->state == GateRecord::State::kRunning; });
  }
  bool AllHeld() const {
    return !gates.empty() && std::ranges::all_of(gates, [](const GateRecord* gate) { return gate->held; });
  }
};

SteeringServer::SteeringServer(std::uint32_t gpu, const sched::SteeringConfig& config, ChannelServer& channels)
    : gpu_(gpu), config_(config), steering_(config), channels_(channels) {}

SteeringServer::~SteeringServer() = default;

Result<void> SteeringServer::Set(Id vgpu, const sched::Shares& shares, Nanos now) {
  if (!turns_.contains(vgpu)) {
    if (auto added = steering_.Add(vgpu, shares, now); !added) return added;
    turns_[vgpu] = std::make_unique<SteeringState>(SteeringState{.vgpu = vgpu, .quota = QuotaOf(shares)});
    Execute(now);
    return {};
  }
  auto updated = steering_.Update(vgpu, shares, now);
  if (updated) turns_.at(vgpu)->quota = QuotaOf(shares);
  slices_due_ = true;
  Execute(now);
  return updated;
}

void SteeringServer::Remove(Id vgpu, Nanos now) {
  const auto found = turns_.find(vgpu);
  if (found == turns_.end()) return;
  std::vector<pid_t> pids;
  for (GateRecord* gate : found->second->gates) {
    gate->page.Give({});
    pids.push_back(gate->pid);
    gate->steered = nullptr;
  }
  // Their work must not run on without a share; their channels stay frozen until they end.
  if (!pids.empty()) (void)channels_.Freezer().Freeze(gpu_, pids, FreezeReason::kPolicy);
  turns_.erase(found);
  steering_.Remove(vgpu, now);
  Execute(now);
}

void SteeringServer::Join(Id vgpu, GateRecord& gate, Nanos now) {
  SteeringState& turn = *turns_.at(vgpu);
  gate.steered = &turn;
  gate.slice = 0;
  turn.gates.push_back(&gate);
  slices_due_ = true;  // it may run already
  if (gate.ungated) steering_.Ungated(vgpu, true);
  if (!turn.stopped && !gate.held) Free(gate, turn, SharedPage::Bell::kWake);
  Execute(now);
}

void SteeringServer::Leave(GateRecord& gate, Nanos now) {
  if (!gate.steered) return;
  SteeringState& turn = *gate.steered;
  std::erase(turn.gates, &gate);
  gate.steered = nullptr;
  steering_.Ungated(turn.vgpu, std::ranges::any_of(turn.gates, &GateRecord::ungated));
  Report(turn, now, now);
  slices_due_ = true;
  Execute(now);
}

void SteeringServer::Abandon(Nanos) {
  Seal();
  std::vector<pid_t> frozen;
  for (const auto& [id, turn] : turns_) {
    for (GateRecord* gate : turn->gates) {
      frozen.push_back(gate->pid);
      gate->page.Give({});
      gate->state = GateRecord::State::kParked;
      gate->steered = nullptr;
    }
    turn->gates.clear();
  }
  if (!frozen.empty()) (void)channels_.Freezer().Thaw(gpu_, frozen, FreezeReason::kPolicy);
}

void SteeringServer::Free(GateRecord& gate, const SteeringState& turn, SharedPage::Bell bell) {
  gate.page.Give({wire::GateOrder::kFree, 0, turn.grace}, bell);
}

// Whose next work is to wait; what it has on the GPU is frozen, if it is held.
void SteeringServer::Shut(GateRecord& gate) {
  gate.page.Give({gate.held ? wire::GateOrder::kStopped : wire::GateOrder::kClosed, 0, 0}, SharedPage::Bell::kQuiet);
}

void SteeringServer::Wants(GateRecord& gate, Nanos now, bool waits) {
  if (!gate.steered) return;
  SteeringState& turn = *gate.steered;
  if (gate.held) {
    if (waits) {
      gate.Wants(now);
    } else {
      Runs(gate, turn, now);
    }
  } else if (!waits) {
    // It met a gate that was free; if that was just closed, its work is on the GPU all the same.
    Runs(gate, turn, now);
    if (turn.stopped && !Sealed()) (void)channels_.Freezer().Freeze(gpu_, {&gate.pid, 1}, FreezeReason::kPolicy);
  } else if (turn.stopped) {
    gate.Wants(now);
  } else {
    Runs(gate, turn, now);
    Free(gate, turn, SharedPage::Bell::kWake);
  }
  Report(turn, now, now);
  Execute(now);
}

// The processes of a vGPU that run divide its slice.
void SteeringServer::Runs(GateRecord& gate, const SteeringState& turn, Nanos now) {
  const bool did = gate.state == GateRecord::State::kRunning;
  gate.Runs(now);
  if (gate.slice == 0 || (!did && turn.gates.size() > 1)) slices_due_ = true;
}

void SteeringServer::Idle(GateRecord& gate, Nanos now, Nanos since) {
  if (!gate.steered) return;
  SteeringState& turn = *gate.steered;
  gate.state = GateRecord::State::kParked;
  if (turn.gates.size() > 1) slices_due_ = true;
  // Its next work is to wait.
  if (turn.stopped || gate.held) Shut(gate);
  Report(turn, now, std::min(since, now));
  Execute(now);
}

// Its gate closed while work was on its way; that has ended.
void SteeringServer::Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t) {
  if (gate.state == GateRecord::State::kRunning) Idle(gate, now, drained_at);
}

void SteeringServer::Hold(GateRecord& gate, bool held, Nanos now) {
  gate.held = held;
  if (!gate.steered) return;
  SteeringState& turn = *gate.steered;
  // Its channels are frozen, and what it would submit to new ones waits.
  if (held) Shut(gate);
  if (!held && !turn.stopped) {
    if (gate.state == GateRecord::State::kWanting) Runs(gate, turn, now);
    Free(gate, turn, SharedPage::Bell::kWake);
  }
  // A process that went on while the others of its vGPU were stopped is stopped with them.
  if (!held && turn.stopped && gate.state == GateRecord::State::kRunning)
    (void)channels_.Freezer().Freeze(gpu_, {&gate.pid, 1}, FreezeReason::kPolicy);
  Report(turn, now, now);
  Execute(now);
}

void SteeringServer::Report(SteeringState& turn, Nanos now, Nanos idle_since) {
  const bool active = turn.Active();
  if (active == turn.active) return;
  turn.active = active;
  if (active) {
    steering_.Active(turn.vgpu, now);
  } else {
    steering_.Idle(turn.vgpu, now, idle_since);
  }
}

// The driver's library sets a slice of its own while it makes a context; ours comes after that.
void SteeringServer::ChannelsChanged(GateRecord& gate, Nanos now) {
  gate.slice = 0;
  slices_due_ = true;
  slices_at_ = now + kSlicesEvery;
}

void SteeringServer::Advance(Nanos now) {
  steering_.Advance(now);
  Execute(now);
}

Nanos SteeringServer::NextDeadline() const {
  return slices_due_ ? std::min(slices_at_, steering_.NextDeadline()) : steering_.NextDeadline();
}

// Those of one kind together, because several processes cost one call.
void SteeringServer::Execute(Nanos now) {
  if (Sealed()) return;
  std::vector<SteeringState*> stop, go;
  for (const sched::Order& order : steering_.TakeOrders()) {
    const auto found = turns_.find(order.vgpu);
    if (found == turns_.end()) continue;
    SteeringState& turn = *found->second;
    switch (order.kind) {
      case sched::Order::Kind::kStop:
        stop.push_back(&turn);
        break;
      case sched::Order::Kind::kGo:
        go.push_back(&turn);
        break;
      case sched::Order::Kind::kSlice:
        turn.slice = order.time;
        slices_due_ = true;
        slices_at_ = now;
        break;
      case sched::Order::Kind::kGrace:
        turn.grace = order.time;
        for (GateRecord* gate : turn.gates) gate->page.SetIdleGrace(order.time);
        break;
    }
  }
  Stop(stop, now);
  Go(go, now);
  if (slices_due_ && now >= slices_at_) ApplySlices(now);
}

void SteeringServer::Stop(const std::vector<SteeringState*>& turns, Nanos now) {
  std::vector<pid_t> running;
  for (SteeringState* turn : turns) {
    if (!std::exchange(turn->stopped, true)) turn->stopped_at = now;
    for (GateRecord* gate : turn->gates) {
      if (gate->state == GateRecord::State::kRunning || gate->ungated) {
        running.push_back(gate->pid);
      } else if (!gate->held) {
        gate->page.Give({}, SharedPage::Bell::kQuiet);
      }
    }
  }
  if (running.empty()) return;
  if (auto frozen = channels_.Freezer().Freeze(gpu_, running, FreezeReason::kPolicy); !frozen)
    log::Error("GPU {}: cannot freeze: {}", gpu_, frozen.error().Text());
}

void SteeringServer::Go(const std::vector<SteeringState*>& turns, Nanos now) {
  std::vector<pid_t> frozen;
  for (SteeringState* turn : turns) {
    turn->stopped = false;
    for (GateRecord* gate : turn->gates) {
      if (Has(channels_.Freezer().StatusOf(gate->pid, gpu_).reasons, FreezeReason::kPolicy))
        frozen.push_back(gate->pid);
    }
  }
  if (!frozen.empty()) {
    if (auto thawed = channels_.Freezer().Thaw(gpu_, frozen, FreezeReason::kPolicy); !thawed)
      log::Error("GPU {}: cannot thaw: {}", gpu_, thawed.error().Text());
  }
  for (SteeringState* turn : turns) {
    for (GateRecord* gate : turn->gates) {
      if (gate->held) continue;
      if (gate->state == GateRecord::State::kRunning) {
        if (gate->waits && turn->stopped_at != 0) gate->waits->Note(now - turn->stopped_at);  // frozen, with its work
        continue;
      }
      if (gate->state == GateRecord::State::kWanting) Runs(*gate, *turn, now);
      Free(*gate, *turn, SharedPage::Bell::kWake);
    }
    turn->stopped_at = 0;
  }
}

Nanos SteeringServer::QuotaOf(const sched::Shares& shares) const {
  return static_cast<Nanos>(shares.limit_pct / 100 * static_cast<double>(config_.shares.window));
}

// The slice of each process of a vGPU; 0: as it is. Several that compete only with one another would lose a tenth of
// the time by changes if they kept the driver's slices (docs/hardware-log.md).
Nanos SteeringServer::PartOf(const SteeringState& turn) const {
  const std::ptrdiff_t running = std::max<std::ptrdiff_t>(1, turn.Running());
  if (turn.slice != 0) return turn.slice / running;
  const Nanos part = std::min(config_.mean_slice, turn.quota / kTurnsInAQuota) / running;
  return running > 1 && part > kDriverSlice ? part : 0;
}

void SteeringServer::ApplySlices(Nanos now) {
  slices_due_ = false;
  slices_at_ = now + kSlicesEvery;
  for (const auto& [id, turn] : turns_) {
    const Nanos part = PartOf(*turn);
    if (part == 0) continue;
    for (GateRecord* gate : turn->gates) {
      if (gate->state != GateRecord::State::kRunning) continue;
      const double change = std::abs(static_cast<double>(gate->slice - part));
      if (gate->slice != 0 && change <= kSameSlice * static_cast<double>(part)) continue;
      const auto set = channels_.SetSlice(gpu_, gate->pid, part);
      if (!set && set.error().code != ESRCH && !std::exchange(slices_fail_, true))
        log::Warn("GPU {}: weights do not hold, process {} keeps its slice: {}", gpu_, gate->pid, set.error().Text());
      gate->slice = part;
    }
  }
}

TimeServer::State SteeringServer::StateOf(Id vgpu) const {
  const auto found = turns_.find(vgpu);
  if (found == turns_.end()) return {};
  const SteeringState& turn = *found->second;
  State state{.slice = steering_.SliceOf(vgpu)};
  if (turn.active) state.standing = turn.stopped ? Standing::kWaiting : Standing::kRunning;
  if (state.standing == Standing::kWaiting)
    state.why = steering_.AtLimit(vgpu) ? WaitReason::kLimit : WaitReason::kClass;
  return state;
}

}  // namespace tessera::server
