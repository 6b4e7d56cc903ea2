#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "server/config/config.h"
#include "server/devices/gpu_driver.h"
#include "server/gpu/placement.h"

namespace tessera::server {

// Bytes of RAM that programs could have now.
std::uint64_t FreeRam();

// The machine that GPUs share host memory on.
struct SwapHost {
  std::string run_dir;
  bool soft = false;  // its GPUs are soft ones
  std::uint64_t free_ram = 0;
  std::size_t gpus = 1;
};

// The host memory and the file of one GPU, as the configuration says. Memory of an earlier daemon's programs stays
// theirs: its file takes the place of the one that is configured now.
Result<SwapSetup> MakeSwapSetup(const Config& config, const SwapHost& host, const GpuInfo& info, std::uint32_t index);

}  // namespace tessera::server
