#include "shim/gate/context_gates.h"

#include <algorithm>

#include "shim/gate/capture.h"
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
  gate->markers->Reset();
  gates_.erase(at);
  spare_.push_back(gate);
}

void ContextGates::CloseAll() {
  for (Gate* gate : gates_) gate->Close();
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
  }
}

std::int64_t ContextGates::Submitted() const {
  std::int64_t sum = 0;
  for (const Gate* gate : gates_) sum += gate->Submitted();
  return sum;
}

bool ContextGates::AnyPending() const {
  return std::any_of(gates_.begin(), gates_.end(), [](const Gate* gate) { return gate->markers->AnyPending(); });
}

bool ContextGates::Drained() const {
  // There are no markers during a capture; then those that were placed before must do.
  if (AnyCapture()) return !AnyPending();
  return std::all_of(gates_.begin(), gates_.end(), [](const Gate* gate) { return gate->markers->Drained(); });
}

bool ContextGates::SurelyDrained() const {
  return !AnyCapture() && std::all_of(gates_.begin(), gates_.end(), [](const Gate* gate) {
    return gate->markers->Tell() && gate->markers->Drained();
  });
}

Nanos ContextGates::LastReached(Nanos earliest) const {
  for (const Gate* gate : gates_) earliest = std::max(earliest, gate->markers->LastReached());
  return earliest;
}

}  // namespace tessera::shim
