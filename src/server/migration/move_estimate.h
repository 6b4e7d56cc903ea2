#pragma once

#include <cstddef>
#include <cstdint>

#include "server/gpu/placement.h"
#include "server/model/vgpu.h"

namespace tessera::server {

// How long it takes to move programs to another GPU, through host memory, by what was measured on an H200.
struct MoveEstimate {
  std::uint64_t moved = 0;  // bytes that Tessera moves
  std::uint64_t saved = 0;  // that the driver saves

  // The vGPU's programs, which are on the GPU of this placement, move as well.
  void Add(const Placement& placement, const VGpu& vgpu);
  // `rounds`: so many programs go one after the other; 0: none has to stand still.
  double Seconds(std::size_t rounds = 1) const;
};

}  // namespace tessera::server
