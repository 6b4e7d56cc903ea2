// Occupancy queries.
#include "soft/api/api.h"
#include "soft/module/library.h"
#include "soft/module/occupancy.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr unsigned kOccupancyFlags = 1;  // CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE

}  // namespace

TESSERA_CUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int block_size,
                                                                      std::size_t dynamic_shared_bytes,
                                                                      unsigned flags) {
  return WithFunction(handle, [&](Context&, const Function& function) {
    if (block_size <= 0 || flags > kOccupancyFlags) return CUDA_ERROR_INVALID_VALUE;
    return Give(blocks, BlocksPerMultiprocessor(function, block_size, dynamic_shared_bytes));
  });
}

TESSERA_CUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                             std::size_t dynamic_shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic_shared_bytes, 0);
}

TESSERA_CUDA_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_size, int* block_size, CUfunction handle,
                                                           CUoccupancyB2DSize shared_of, std::size_t shared_bytes,
                                                           int limit, unsigned flags) {
  return WithFunction(handle, [&](Context& context, const Function& function) {
    if (grid_size == nullptr || block_size == nullptr || flags > kOccupancyFlags) return CUDA_ERROR_INVALID_VALUE;
    const auto shared = [&](int size) { return shared_of != nullptr ? shared_of(size) : shared_bytes; };
    *block_size = BestBlockSize(function, limit, shared);
    *grid_size = BlocksPerMultiprocessor(function, *block_size, shared(*block_size)) *
                 static_cast<int>(context.device().multiprocessors());
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuOccupancyMaxPotentialBlockSize(int* grid_size, int* block_size, CUfunction function,
                                                  CUoccupancyB2DSize shared_of, std::size_t shared_bytes, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of, shared_bytes, limit, 0);
}

TESSERA_CUDA_API cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, CUfunction handle, int blocks,
                                                         int block_size) {
  return WithFunction(handle, [&](Context&, const Function& function) {
    if (blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    return Give(bytes, AvailableDynamicShared(function, blocks, block_size));
  });
}

}  // namespace tessera::soft
