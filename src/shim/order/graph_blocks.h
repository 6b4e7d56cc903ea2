// Blocks of the pager's heap that stand for the memory of graphs' allocation nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"
#include "shim/order/pending_frees.h"
#include "shim/order/stream_pool.h"

namespace tessera::shim {

// The blocks of one heap that allocation nodes have. A block lives as long as a graph, or an executable one, holds it,
// and beyond that as long as the program owns it: a launch whose graph does not free the memory leaves it to the
// program. Thread-safe.
class GraphBlocks {
 public:
  // A graph's hold of a block. Made by Add, ended by Drop.
  struct Hold {
    GraphBlocks& blocks;
    cuda::CUdeviceptr begin;
    std::uint64_t id;
    Hold* next = nullptr;
  };
  explicit GraphBlocks(StreamMemory& memory) : pool_(memory, nullptr, 0) {}
  GraphBlocks(const GraphBlocks&) = delete;

  // The owner of the blocks, which counts them: all of them are in use and reserved as long as they live.
  StreamPool& Pool() { return pool_; }

  // A graph holds a block of Pool() from now on. The hold lives until TakeDropped after its Drop.
  Hold* Add(const pager::Block& block);
  // Ends a hold. The destructor of a user object: any thread, possibly with locks of the driver held, so it takes no
  // lock, calls nothing, and leaves the rest to TakeDropped.
  static void Drop(void* hold);
  // Whether any heap of the process has holds that ended. Takes no lock.
  static bool AnyDropped();
  // The blocks that neither graphs nor the program have any more. All launches that used them have ended; work of
  // `context`, if not null, may use them still.
  std::vector<UnsettledFree> TakeDropped();

  // Whether this block is a graph's, or was and is the program's now.
  bool Has(cuda::CUdeviceptr begin, std::uint64_t id) const;
  // A launch leaves the block that begins here to the program.
  void Leave(cuda::CUdeviceptr begin);
  bool Left(cuda::CUdeviceptr begin) const;
  // The program frees a block, by a call or by a launch; work of `context`, if not null, may use it still.
  // CUDA_SUCCESS: a graph has it, and the next launch may allocate it again. CUDA_ERROR_INVALID_VALUE: the program does
  // not own it now. None: it is no graph's, or not any more, and is freed as any other.
  std::optional<cuda::CUresult> Free(const pager::Block& block, cuda::CUcontext context);
  // All blocks are gone: the device has no context any more.
  void Forget();

 private:
  struct State {
    std::uint64_t id = 0;
    bool held = true, left = false;
    cuda::CUcontext context = nullptr;  // whose work may use it still when its hold ends
  };

  StreamPool pool_;
  std::atomic<Hold*> dropped_{nullptr};

  mutable ForkMutex mutex_;
  std::map<cuda::CUdeviceptr, State> states_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::shim
