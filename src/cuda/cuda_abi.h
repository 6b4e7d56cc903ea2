// The CUDA driver API's ABI as far as Tessera uses it. No CUDA toolkit is needed to build.
#pragma once

#include "cuda/abi_checkpoint.h"
#include "cuda/abi_graph.h"
#include "cuda/abi_launch.h"
#include "cuda/abi_memory.h"
#include "cuda/abi_types.h"
