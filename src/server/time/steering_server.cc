#include "server/time/steering_server.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "server/record/log.h"
#include "server/time/steering_state.h"

namespace tessera::server {
namespace {

// Processes of a vGPU share its slice; as they come and go the parts change, but not more often than this.
constexpr Nanos kSlicesEvery = 100 * kMillisecond;
constexpr double kSameSlice = 0.02;

// A slice that is so long is too long for one that is due `part`; kNever where it may be any.
Nanos TooLong(Nanos part) {
  return part == 0 ? kNever : part + static_cast<Nanos>(kSameSlice * static_cast<double>(part));
}

// Time that the limit lets a vGPU run in a window.
Nanos QuotaOf(const sched::Shares& shares, Nanos window) {
  return static_cast<Nanos>(shares.limit_pct / 100 * static_cast<double>(window));
}

// Makes the process's next work wait; its work on the GPU is frozen, if it is held.
void Shut(GateRecord& gate) {
  gate.page.Give({gate.held ? wire::GateOrder::kStopped : wire::GateOrder::kClosed, 0, 0}, SharedPage::Bell::kQuiet);
}

}  // namespace

SteeringServer::SteeringServer(std::uint32_t gpu, const sched::SteeringConfig& config, Nanos in_flight,
                               ChannelServer& channels)
    : gpu_(gpu), config_(config), in_flight_(in_flight), steering_(config), channels_(channels) {}

SteeringServer::~SteeringServer() = default;

Result<void> SteeringServer::Set(Id vgpu, const sched::Shares& shares, Nanos now) {
  const bool known = states_.contains(vgpu);
  auto set = known ? steering_.Update(vgpu, shares, now) : steering_.Add(vgpu, shares, now);
  if (!set) return set;
  if (!known) states_[vgpu] = std::make_unique<SteeringState>(SteeringState{.vgpu = vgpu});
  states_.at(vgpu)->quota = QuotaOf(shares, config_.shares.window);
  slices_due_ = slices_due_ || known;
  Execute(now);
  return {};
}

void SteeringServer::Remove(Id vgpu, Nanos now) {
  const auto found = states_.find(vgpu);
  if (found == states_.end()) return;
  std::vector<pid_t> pids;
  for (GateRecord* gate : found->second->gates) {
    gate->page.Give({});
    pids.push_back(gate->pid);
    gate->steered = nullptr;
  }
  // Their work must not run on without a share; their channels stay frozen until they end.
  if (!pids.empty()) (void)channels_.Freezer().Freeze(gpu_, pids, FreezeReason::kPolicy);
  states_.erase(found);
  steering_.Remove(vgpu, now);
  Execute(now);
}

void SteeringServer::Join(Id vgpu, GateRecord& gate, Nanos now) {
  SteeringState& steered = *states_.at(vgpu);
  gate.steered = &steered;
  gate.slice = 0;
  steered.gates.push_back(&gate);
  slices_due_ = true;  // it may run already
  if (gate.ungated) steering_.Ungated(vgpu, true);
  if (!steered.stopped && !gate.held) Free(gate, steered, SharedPage::Bell::kWake);
  Execute(now);
}

void SteeringServer::Leave(GateRecord& gate, Nanos now) {
  if (!gate.steered) return;
  SteeringState& steered = *gate.steered;
  std::erase(steered.gates, &gate);
  gate.steered = nullptr;
  for (const auto& [id, other] : states_) {
    if (!other->stopped) Thaw(FrozenIn(*other, gate.pid));  // it was frozen for this vGPU, perhaps
  }
  steering_.Ungated(steered.vgpu, std::ranges::any_of(steered.gates, &GateRecord::ungated));
  Report(steered, now, now);
  slices_due_ = true;
  Execute(now);
}

void SteeringServer::Abandon(Nanos) {
  Seal();
  std::vector<pid_t> frozen;
  for (const auto& [id, steered] : states_) {
    for (GateRecord* gate : steered->gates) {
      frozen.push_back(gate->pid);
      gate->page.Give({});
      gate->state = GateRecord::State::kParked;
      gate->steered = nullptr;
    }
    steered->gates.clear();
  }
  if (!frozen.empty()) (void)channels_.Freezer().Thaw(gpu_, frozen, FreezeReason::kPolicy);
}

// A gate that must be able to stop the process is open in answer to a Wants only, as under tokens.
void SteeringServer::Free(GateRecord& gate, const SteeringState& steered, SharedPage::Bell bell) {
  if (gate.stop.AtGate()) {
    if (gate.state == GateRecord::State::kRunning)
      gate.page.Give({wire::GateOrder::kBounded, in_flight_, steered.grace}, bell);
    return;
  }
  gate.page.Give({wire::GateOrder::kFree, 0, steered.grace}, bell);
}

void SteeringServer::Wants(GateRecord& gate, Nanos now, bool waits) {
  if (!gate.steered) return;
  SteeringState& steered = *gate.steered;
  if (gate.stop.AtGate()) {
    WantsGate(gate, steered, now, waits);
  } else if (gate.held) {
    if (waits) {
      gate.Wants(now);
    } else {
      Runs(gate, steered, now);
    }
  } else if (!waits) {
    // It met a gate that was free; if that was just closed, its work is on the GPU all the same.
    Runs(gate, steered, now);
    if (steered.stopped && !Sealed()) FreezeNow(gate);
  } else if (steered.stopped) {
    gate.Wants(now);
  } else {
    Runs(gate, steered, now);
    Free(gate, steered, SharedPage::Bell::kWake);
  }
  Report(steered, now, now);
  Execute(now);
}

void SteeringServer::WantsGate(GateRecord& gate, SteeringState& steered, Nanos now, bool waits) {
  if (!gate.held && !steered.stopped) {
    Runs(gate, steered, now);
    Free(gate, steered, SharedPage::Bell::kWake);
  } else if (waits) {
    gate.Wants(now);
  } else {
    // It met a gate that was open; that is closed now, and the process says when its work has ended.
    gate.Runs(now);
    gate.Close();
    if (steered.stopped && !Sealed()) FreezeNow(gate);
  }
}

// A failure is tried again with the next reason to freeze it.
void SteeringServer::FreezeNow(const GateRecord& gate) {
  (void)channels_.Freezer().Freeze(gpu_, {&gate.pid, 1}, FreezeReason::kPolicy);
}

// The processes of a vGPU that run divide its slice. A process that was idle when that became shorter gets it at once,
// before it holds up a higher class.
void SteeringServer::Runs(GateRecord& gate, const SteeringState& steered, Nanos now) {
  const bool did = gate.state == GateRecord::State::kRunning;
  gate.Runs(now);
  if (gate.slice == 0 || (!did && steered.gates.size() > 1)) slices_due_ = true;
  if (did || gate.slice <= TooLong(steered.Part(config_.mean_slice))) return;
  slices_due_ = true;
  slices_at_ = now;
}

void SteeringServer::Idle(GateRecord& gate, Nanos now, Nanos since) {
  if (!gate.steered) return;
  SteeringState& steered = *gate.steered;
  gate.state = GateRecord::State::kParked;
  if (steered.gates.size() > 1) slices_due_ = true;
  // Its next work is to wait.
  if (steered.stopped || gate.held || gate.stop.AtGate()) Shut(gate);
  Report(steered, now, std::min(since, now));
  Execute(now);
}

// Its gate closed while work was on its way; that has ended.
void SteeringServer::Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) {
  const bool drained = gate.state == GateRecord::State::kDraining && gate.closing_epoch == epoch;
  if (drained || gate.state == GateRecord::State::kRunning) Idle(gate, now, drained_at);
}

void SteeringServer::Hold(GateRecord& gate, bool held, Nanos now) {
  gate.held = held;
  if (!gate.steered) return;
  SteeringState& steered = *gate.steered;
  // Its channels are frozen, and what it would submit to new ones waits. Where its gate must stop it, what it has
  // queued drains.
  if (held && gate.stop.AtGate()) {
    if (gate.state == GateRecord::State::kRunning)
      gate.Close(gate.stop.Freezes() ? wire::GateOrder::kStopped : wire::GateOrder::kClosed);
  } else if (held) {
    Shut(gate);
  }
  if (!held && !steered.stopped) {
    if (gate.state == GateRecord::State::kWanting) Runs(gate, steered, now);
    Free(gate, steered, SharedPage::Bell::kWake);
  }
  // A process that went on while the others of its vGPU were stopped is stopped with them.
  if (!held && steered.stopped && gate.state == GateRecord::State::kRunning) FreezeNow(gate);
  Report(steered, now, now);
  Execute(now);
}

void SteeringServer::Report(SteeringState& steered, Nanos now, Nanos idle_since) {
  const bool active = steered.Active();
  if (active == steered.active) return;
  steered.active = active;
  if (active) {
    steering_.Active(steered.vgpu, now);
  } else {
    steering_.Idle(steered.vgpu, now, idle_since);
  }
}

// The driver's library sets a slice of its own while it makes a context; ours comes after that.
void SteeringServer::ChannelsChanged(GateRecord& gate, GateRecord::Stop stop, Nanos now) {
  gate.slice = 0;
  slices_due_ = true;
  slices_at_ = now + kSlicesEvery;
  if (gate.stop == stop) return;
  if (!gate.steered || Sealed()) {
    gate.stop = stop;
    return;
  }
  ChangeStop(gate, stop, now);
  Report(*gate.steered, now, now);
  Execute(now);
}

// It may run, or may just be stopped by what stopped it until now.
void SteeringServer::ChangeStop(GateRecord& gate, GateRecord::Stop stop, Nanos now) {
  using State = GateRecord::State;
  const bool was_at_gate = std::exchange(gate.stop, stop).AtGate();
  SteeringState& steered = *gate.steered;
  const bool may_run = !steered.stopped && !gate.held;
  if (was_at_gate && !stop.AtGate()) {
    if (gate.state == State::kDraining || (may_run && gate.state == State::kWanting)) Runs(gate, steered, now);
    if (steered.stopped && gate.state == State::kRunning) FreezeNow(gate);
    if (may_run || (!gate.held && gate.state == State::kRunning)) Free(gate, steered, SharedPage::Bell::kWake);
  } else if (!was_at_gate && stop.AtGate()) {
    if (gate.state != State::kRunning) {
      Shut(gate);  // it may have been free
    } else if (may_run) {
      Free(gate, steered, SharedPage::Bell::kWake);
    } else {
      gate.Close();
    }
  }
}

void SteeringServer::SetAside(const std::set<Id>& vgpus, Nanos now) {
  steering_.SetAside(vgpus, now);
  Execute(now);
}

void SteeringServer::Advance(Nanos now) {
  steering_.Advance(now);
  Execute(now);
}

TimeServer::Deadline SteeringServer::NextDeadline() const {
  const Nanos next = steering_.NextDeadline();
  return {.at = slices_due_ ? std::min(slices_at_, next) : next, .urgent = steering_.Urgent()};
}

// Orders of one kind go together, because several processes cost one call.
void SteeringServer::Execute(Nanos now) {
  if (Sealed()) return;
  std::vector<SteeringState*> stop, go;
  for (const sched::Order& order : steering_.TakeOrders()) {
    const auto found = states_.find(order.vgpu);
    if (found == states_.end()) continue;
    SteeringState& steered = *found->second;
    switch (order.kind) {
      case sched::Order::Kind::kStop:
        stop.push_back(&steered);
        break;
      case sched::Order::Kind::kGo:
        go.push_back(&steered);
        break;
      case sched::Order::Kind::kSlice:
        steered.slice = order.time;
        slices_due_ = true;
        slices_at_ = now;
        break;
      case sched::Order::Kind::kGrace:
        steered.grace = order.time;
        for (GateRecord* gate : steered.gates) gate->page.SetIdleGrace(order.time);
        break;
    }
  }
  Stop(stop, now);
  Go(go, now);
  if (slices_due_ && now >= slices_at_) ApplySlices(now);
}

void SteeringServer::Stop(const std::vector<SteeringState*>& states, Nanos now) {
  std::vector<pid_t> running;
  for (SteeringState* steered : states) {
    if (!std::exchange(steered->stopped, true)) steered->stopped_at = now;
    for (GateRecord* gate : steered->gates) {
      if (gate->state == GateRecord::State::kRunning || gate->ungated) {
        if (gate->stop.Freezes()) running.push_back(gate->pid);
        if (gate->stop.AtGate()) gate->Close();
      } else if (!gate->held && !gate->stop.AtGate()) {
        gate->page.Give({}, SharedPage::Bell::kQuiet);
      }
    }
  }
  if (running.empty()) return;
  if (auto frozen = channels_.Freezer().Freeze(gpu_, running, FreezeReason::kPolicy); !frozen)
    log::Error("GPU {}: cannot freeze: {}", gpu_, frozen.error().Text());
}

void SteeringServer::Go(const std::vector<SteeringState*>& states, Nanos now) {
  for (SteeringState* steered : states) steered->stopped = false;
  std::vector<pid_t> frozen;
  for (const SteeringState* steered : states) std::ranges::copy(FrozenIn(*steered), std::back_inserter(frozen));
  Thaw(frozen);
  for (SteeringState* steered : states) {
    for (GateRecord* gate : steered->gates) {
      // A process that drains at its gate asks again when that has ended.
      if (gate->held || gate->state == GateRecord::State::kDraining) continue;
      if (gate->state == GateRecord::State::kRunning) {
        if (gate->waits && steered->stopped_at != 0)
          gate->waits->Note(now - steered->stopped_at);  // frozen, with its work
        continue;
      }
      if (gate->state == GateRecord::State::kWanting) Runs(*gate, *steered, now);
      Free(*gate, *steered, SharedPage::Bell::kWake);
    }
    steered->stopped_at = 0;
  }
}

// The processes that the policy froze and that may go on for this vGPU; of one program only, if `pid` names it. A
// program may be in two vGPUs: where the other one is stopped, it goes on only for work that counts in this one.
std::vector<pid_t> SteeringServer::FrozenIn(const SteeringState& steered, pid_t pid) const {
  std::vector<pid_t> frozen;
  for (const GateRecord* gate : steered.gates) {
    if ((pid == 0 || gate->pid == pid) &&
        Has(channels_.Freezer().StatusOf(gate->pid, gpu_).reasons, FreezeReason::kPolicy) &&
        (gate->Counts() || !std::ranges::any_of(states_, [gate](const auto& other) {
           return other.second->stopped && other.second->Has(gate->pid);
         })))
      frozen.push_back(gate->pid);
  }
  return frozen;
}

void SteeringServer::Thaw(const std::vector<pid_t>& pids) {
  if (pids.empty()) return;
  if (auto thawed = channels_.Freezer().Thaw(gpu_, pids, FreezeReason::kPolicy); !thawed)
    log::Error("GPU {}: cannot thaw: {}", gpu_, thawed.error().Text());
}

void SteeringServer::ApplySlices(Nanos now) {
  slices_due_ = false;
  slices_at_ = now + kSlicesEvery;
  for (const auto& [id, steered] : states_) {
    const Nanos part = steered->Part(config_.mean_slice);
    if (part == 0) continue;
    for (GateRecord* gate : steered->gates) {
      if (gate->state != GateRecord::State::kRunning || !gate->stop.Freezes()) continue;
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
  const auto found = states_.find(vgpu);
  if (found == states_.end()) return {};
  const SteeringState& steered = *found->second;
  State state{.slice = steering_.SliceOf(vgpu)};
  if (steered.active) state.standing = steered.stopped ? Standing::kWaiting : Standing::kRunning;
  if (state.standing == Standing::kWaiting)
    state.why = steering_.AtLimit(vgpu) ? WaitReason::kLimit : WaitReason::kClass;
  return state;
}

}  // namespace tessera::server
