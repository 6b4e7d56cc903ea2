#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "soft/device/address_map.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

class Device;
struct SharedUse;

// How GPU work touches memory: in short steps, a few instructions of a kernel or a piece of a copy. Between two steps
// memory may be unmapped, moved and mapped again. A process that is frozen begins none, and SharedState::SetFrozen
// waits for those that have begun. Of one thread.
class MemorySteps {
 public:
  // `stopped_by`: how far a process has to be frozen for this work to stand still. `aborted`: the work shall end.
  MemorySteps(Device& device, Frozen stopped_by, std::function<bool()> aborted);
  ~MemorySteps() { End(); }
  MemorySteps(const MemorySteps&) = delete;

  // False while the work has to stand still.
  bool TryBegin();
  // Waits until it need not. False if it was aborted meanwhile.
  bool Begin();
  // No-op outside of a step.
  void End();
  bool aborted() const { return aborted_(); }

 private:
  const std::atomic<Frozen>& frozen_;
  std::atomic<std::uint32_t>& count_;
  const Frozen stopped_by_;
  const std::function<bool()> aborted_;
  std::optional<AddressMap::Kernels> running_;  // in a step
};

}  // namespace tessera::soft
