// What a function of the driver that the shim implements itself needs: the way it is exported, and the real one.
#pragma once

#include "cuda/cuda_abi.h"
#include "shim/load/real.h"

// An exported function of the driver that the shim implements.
#define TESSERA_HOOK extern "C" [[gnu::visibility("default")]] tessera::cuda::CUresult
