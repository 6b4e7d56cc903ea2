// For functions of the driver that the shim implements itself: how to export one, and how to call the real one.
#pragma once

#include "cuda/cuda_abi.h"
#include "shim/load/real.h"

// An exported function of the driver that the shim implements.
#define TESSERA_HOOK extern "C" [[gnu::visibility("default")]] tessera::cuda::CUresult
