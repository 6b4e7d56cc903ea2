// Memory that the daemon gave room for, and that another program is just giving up.
#pragma once

#include <unistd.h>

#include "cuda/cuda_abi.h"
#include "shim/memory/room_account.h"

namespace tessera::shim {

// Makes something on the GPU by `make`, for which there is room on `room` (null: not managed). The program that had the
// memory before may not have returned it to the driver yet: CUDA_ERROR_OUT_OF_MEMORY is final only after 2 s.
template <typename Make>
cuda::CUresult MakeWithRoom(const RoomAccount* room, Make make) {
  constexpr int kTries = 100;
  constexpr unsigned kRetryUs = 20'000;
  cuda::CUresult result = make();
  for (int tries = 1; result == cuda::CUDA_ERROR_OUT_OF_MEMORY && room && room->Swaps() && tries < kTries; ++tries) {
    usleep(kRetryUs);
    result = make();
  }
  return result;
}

}  // namespace tessera::shim
