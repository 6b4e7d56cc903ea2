#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "server/model/vgpu.h"
#include "server/swap/mover.h"

namespace tessera::server {

// The calls by which the residency server uses the rest of its GPU.
struct ResidencyHost {
  // Bytes of the GPU's memory that room may be granted of, promises included: contexts are taken off, and everybody
  // who counts no room.
  std::function<std::uint64_t()> capacity;
  // Bytes of a vGPU's limit that its processes may have as room; nullopt: it has no limit.
  std::function<std::optional<std::uint64_t>(const VGpu&)> promise;
  // Stops the process for the sake of its memory, or lets it go on. May mark a look as due, but must not look.
  std::function<void(Process&, MemoryHold, Nanos now)> hold;
  // Whether nothing of it can execute: its channels are frozen, or its work has drained.
  std::function<bool(const Process&)> still;
  std::function<Result<std::unique_ptr<Mover>>(std::function<void(const wire::MoverMessage*)>)> start_mover;
};

}  // namespace tessera::server
