#include "soft/module/occupancy.h"

#include <algorithm>

#include "soft/device/context.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr std::size_t kWarp = 32;

// The driver hands out shared memory in these steps, as sizes it answers show.
constexpr std::size_t kSharedGranule = 128;

std::size_t Limit(const Function& function, CUdevice_attribute attribute) {
  return static_cast<std::size_t>(function.module.context().device().Attribute(attribute));
}

}  // namespace

int BlocksPerMultiprocessor(const Function& function, int block_size, std::size_t dynamic_shared_bytes) {
  if (block_size <= 0 || block_size > static_cast<int>(Limit(function, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) ||
      dynamic_shared_bytes > static_cast<std::size_t>(function.max_dynamic_shared_bytes)) {
    return 0;
  }
  const std::size_t threads = (static_cast<std::size_t>(block_size) + kWarp - 1) / kWarp * kWarp;
  const std::size_t shared = function.kernel.static_shared_bytes + dynamic_shared_bytes +
                             Limit(function, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  return static_cast<int>(
      std::min({Limit(function, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
                Limit(function, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / threads,
                Limit(function, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / shared}));
}

std::size_t AvailableDynamicShared(const Function& function, int blocks, int block_size) {
  if (blocks > BlocksPerMultiprocessor(function, block_size, 0)) return 0;
  const std::size_t share = Limit(function, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) /
                            static_cast<std::size_t>(blocks) / kSharedGranule * kSharedGranule;
  const std::size_t taken = function.kernel.static_shared_bytes;  // driver 580 forgets what it reserves
  return std::min(share - std::min(share, taken), static_cast<std::size_t>(function.max_dynamic_shared_bytes));
}

}  // namespace tessera::soft
