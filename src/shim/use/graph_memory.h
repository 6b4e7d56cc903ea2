// Memory that the driver keeps for graphs with memory nodes of its own. The shim does not count it: the driver makes it
// when such a graph is launched. Any thread.
#pragma once

#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

// The driver has made a node that allocates memory.
void NoteGraphMemory();
// Bytes that the driver keeps on `device` for such graphs. 0, without asking it, as long as the program has made none.
std::uint64_t GraphMemoryOf(cuda::CUdevice device);

}  // namespace tessera::shim
