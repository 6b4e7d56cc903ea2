// How many blocks of a kernel fit on a multiprocessor: limited by threads, blocks and shared memory. The soft GPU has
// no register file to fill.
#pragma once

#include <cstddef>

#include "soft/module/module.h"

namespace tessera::soft {

int BlocksPerMultiprocessor(const Function& function, int block_size, std::size_t dynamic_shared_bytes);

// The dynamic shared memory that each of `blocks` blocks can have when they share a multiprocessor.
std::size_t AvailableDynamicShared(const Function& function, int blocks, int block_size);

// The block size, of at most `limit` (0: the kernel's own), that fills a multiprocessor best; the larger one of equals.
// `dynamic_shared_bytes(block size)` tells what a block needs.
template <typename DynamicShared>
int BestBlockSize(const Function& function, int limit, const DynamicShared& dynamic_shared_bytes) {
  constexpr int kWarp = 32;
  int largest = static_cast<int>(function.kernel.max_threads);
  if (limit > 0 && limit < largest) largest = limit;
  int best = 0;
  int best_threads = 0;
  const auto consider = [&](int size) {
    const int threads = size * BlocksPerMultiprocessor(function, size, dynamic_shared_bytes(size));
    if (threads <= best_threads) return;
    best = size;
    best_threads = threads;
  };
  if (largest % kWarp != 0) consider(largest);
  for (int size = largest / kWarp * kWarp; size > 0; size -= kWarp) consider(size);
  return best;
}

}  // namespace tessera::soft
