// Blocks of the pager's heap that the program has freed, and whose memory may still be in use.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"

namespace tessera::shim {

// The blocks of one heap that were freed while a stream captured, where waiting for work is forbidden, or in the order
// of a stream (cuMemFreeAsync), whose work is not waited for. Thread-safe.
class PendingFrees {
 public:
  // A block that was freed while a stream captured. False: it is pending already.
  bool Add(const pager::Block& block);
  // A block that was freed behind `event`, which was recorded in `context` and belongs to this from now on.
  bool AddBehind(const pager::Block& block, cuda::CUevent event, cuda::CUcontext context);
  bool Has(const pager::Block& block) const;
  bool Any() const;
  // Whether any heap of the process has some. Takes no lock.
  static bool AnyInProcess();

  // Takes those whose event has been reached: their memory may be given out again. None while a stream captures.
  std::vector<pager::Block> TakeReached();
  // Takes those that were freed while a stream captured; `all`: the others, too. The caller waits for the work of their
  // contexts, which it may not do on the pager's thread. None while a stream captures.
  std::vector<pager::Block> TakeUnsettled(bool all);
  // The context has ended: its blocks are gone, and its events.
  void ForgetAllOf(cuda::CUcontext context);

 private:
  struct Pending {
    pager::Block block;
    cuda::CUevent event = nullptr;  // none: it was freed during a capture
    cuda::CUcontext context = nullptr;
  };

  bool Around(const pager::Block& block) const TESSERA_REQUIRES(mutex_);

  mutable ForkMutex mutex_;
  std::vector<Pending> pending_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::shim
