#pragma once

#include "server/gpu/vgpu_table.h"
#include "server/swap/left_memory.h"

namespace tessera::server {

// Lets all movers leave their pools alone while a program leaves its GPU, or comes back with its memory, or what it
// left comes free: memory that one mover makes keeps others from their work, 64 MiB of host memory hold the driver for
// 20 ms. `migrates`: a migration is under way.
void RestMovers(const VGpuTable::Gpus& gpus, const LeftMemory& left, bool migrates);

}  // namespace tessera::server
