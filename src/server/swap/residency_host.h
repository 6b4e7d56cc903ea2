#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "server/model/vgpu.h"
#include "server/swap/mover.h"
#include "server/swap/survivors.h"

namespace tessera::server {

// What a program does on other GPUs, from where it may reach the memory of one of its processes.
struct PeerWork {
  bool any = false;   // it uses others
  bool work = false;  // it has work there
};

// The calls by which the residency server uses the rest of its GPU.
struct ResidencyHost {
  // Of this GPU: nobody gets room before it is known what they have. Outlives the server.
  const Survivors* survivors = nullptr;
  // Bytes of the GPU's memory that vGPUs may have.
  std::function<std::uint64_t()> capacity;
  // Bytes of a process on the GPU that are not counted as room: contexts, and what only the device knows of.
  std::function<std::uint64_t(const Process&)> outside;
  // Stops the process for the sake of its memory, or lets it go on. May mark a look as due, but must not look.
  std::function<void(Process&, MemoryHold, Nanos now)> hold;
  // Whether nothing of it can execute, nor of its peers: channels are frozen, or work has drained.
  std::function<bool(const Process&)> still;
  // Its peers.
  std::function<PeerWork(const Process&)> peers = [](const Process&) { return PeerWork{}; };
  // A look at the GPU is over: what its vGPUs wish may be different. Must not look.
  std::function<void()> looked = [] {};
  // A suspended process's own file, if it has one.
  std::function<UniqueFd(const Process&)> file_of = [](const Process&) { return UniqueFd(); };
  // Whether some of the GPU's memory lies where this program left it.
  std::function<bool(const Process&)> has_left = [](const Process&) { return false; };
  std::function<Result<std::unique_ptr<Mover>>(std::function<void(const wire::MoverMessage*)>)> start_mover;
};

}  // namespace tessera::server
