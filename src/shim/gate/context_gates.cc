#include "shim/gate/context_gates.h"

#include <unistd.h>

#include <algorithm>

#include "shim/gate/capture.h"
#include "shim/gate/end_watch.h"
#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

Gate* ContextGates::Of(CUcontext context, GateKeeper& keeper, const std::atomic<std::uint32_t>& epoch) {
  for (Gate* gate : gates_)
    if (gate->context == context) return gate;
  Gate* gate;
  if (spare_.empty()) {
    gate = new Gate{.epoch = &epoch, .keeper = &keeper};
    gate->markers = new Markers(*gate);
    gate->watch = new EndWatch;
  } else {
    gate = spare_.back();
    spare_.pop_back();
    gate->epoch = &epoch;
  }
  gate->context = context;
  gate->Close();
  gates_.push_back(gate);
  return gate;
}

void ContextGates::Forget(CUcontext context) {
  const auto at =
      std::find_if(gates_.begin(), gates_.end(), [=](const Gate* gate) { return gate->context == context; });
  if (at == gates_.end()) return;
  Gate* gate = *at;
  gate->Close();
  gate->context = nullptr;
  gate->left = false;
  gate->markers->Reset();
  gate->watch->Reset();
  gates_.erase(at);
  spare_.push_back(gate);
}

void ContextGates::CloseAll() {
  for (Gate* gate : gates_) gate->Close();
}

void ContextGates::GoOnIn(CUcontext context, GateKeeper& keeper, const std::atomic<std::uint32_t>& epoch) {
  Of(context, keeper, epoch);
  for (Gate* gate : gates_) gate->left = gate->context != context;
}

void ContextGates::Follow(const std::atomic<std::uint32_t>& epoch) {
  for (Gate* gate : gates_) {
    gate->Close();
    gate->epoch = &epoch;
    gate->Close();
  }
}

void ContextGates::Relearn() {
  for (Gate* gate : gates_) {
    gate->markers->Relearn();
    gate->Close();
  }
}

Nanos ContextGates::Observe(Nanos now, Nanos target) {
  Nanos youngest = 0;
  for (Gate* gate : gates_) {
    if (gate->markers->AnyPending()) REAL_AS(cuCtxSetCurrent, CUcontext)(gate->context);
    gate->markers->Observe(now, target);
    youngest = std::max(youngest, gate->markers->YoungestReached());
  }
  return youngest;
}

void ContextGates::Cover(Nanos now, bool learn) {
  for (Gate* gate : gates_) {
    if (gate->markers->Covered()) continue;
    REAL_AS(cuCtxSetCurrent, CUcontext)(gate->context);
    gate->markers->Place(now, learn);
  }
}

void ContextGates::MarkAll(Nanos now) {
  for (Gate* gate : gates_) {
    REAL_AS(cuCtxSetCurrent, CUcontext)(gate->context);
    gate->markers->Place(now, false);
    if (!gate->markers->Tell() && !AnyCapture()) gate->watch->Ask(gate->context, gate->Submitted());
  }
}

std::int64_t ContextGates::Submitted() const {
  std::int64_t sum = 0;
  for (const Gate* gate : gates_) sum += gate->Submitted();
  return sum;
}

const EndWatch* ContextGates::PendingWatch(CUcontext context) const {
  const auto at = std::ranges::find(gates_, context, &Gate::context);
  return at != gates_.end() && (*at)->watch->Pending() ? (*at)->watch : nullptr;
}

bool ContextGates::AnyPending() const {
  return std::any_of(gates_.begin(), gates_.end(),
                     [](const Gate* gate) { return gate->markers->AnyPending() || gate->watch->Pending(); });
}

bool ContextGates::Drained() const {
  // There are no markers during a capture; then those that were placed before must do.
  if (AnyCapture()) return !AnyPending();
  return std::all_of(gates_.begin(), gates_.end(),
                     [](const Gate* gate) { return gate->markers->Drained() && !gate->watch->Pending(); });
}

bool ContextGates::SurelyDrained() const {
  return !AnyCapture() && std::all_of(gates_.begin(), gates_.end(), [](const Gate* gate) {
    return gate->markers->Drained() && (gate->markers->Tell() || gate->watch->Ended(gate->Submitted()));
  });
}

Nanos ContextGates::LastReached(Nanos earliest) const {
  for (const Gate* gate : gates_) earliest = std::max(earliest, gate->markers->LastReached());
  return earliest;
}

bool AwaitEnds(ContextGates& gates, Nanos (*clock)(), Nanos target) {
  constexpr Nanos kLongest = 2 * kSecond;
  constexpr unsigned kStepUs = 1'000;
  const Nanos until = clock() + kLongest;
  usleep(kStepUs);
  CUcontext before = nullptr;
  REAL_AS(cuCtxGetCurrent, CUcontext*)(&before);
  gates.MarkAll(clock());
  bool drained = false;
  for (;;) {
    gates.Observe(clock(), target);
    drained = gates.SurelyDrained();
    if (drained || AnyCapture() || clock() >= until) break;
    usleep(kStepUs);
  }
  REAL_AS(cuCtxSetCurrent, CUcontext)(before);
  return drained;
}

}  // namespace tessera::shim
