// Blocks of the pager's heap that the program has freed, and whose memory may still be in use.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"
#include "shim/order/stream_name.h"

namespace tessera::shim {

// A block whose work must be waited for before it can be freed: that of `context`; null: all that may have used it has
// ended.
struct UnsettledFree {
  pager::Block block;
  cuda::CUcontext context = nullptr;
};

// The blocks of one heap that were freed while a stream captured, where waiting for work is forbidden, or in the order
// of a stream (cuMemFreeAsync), whose work is not waited for. Thread-safe.
//
// A free in the order of a stream makes no driver call: the stream itself may have the memory again at once (TakeFrom),
// and only when others need it is a mark placed behind the frees, an event that tells when the stream has come there. A
// mark that is placed later than the free is reached later, never too early. Only a thread's own default stream is
// marked at once, because no other thread can name it.
class PendingFrees {
 public:
  // A block that was freed while a stream captured, by a call that waits for work. False: it is pending already.
  bool Add(const UnsettledFree& free);
  // A block that was freed in the order of `stream`, which does not capture. CUDA_ERROR_INVALID_VALUE: it is pending
  // already; else what the driver says of the stream.
  cuda::CUresult AddBehind(const pager::Block& block, const StreamName& stream);
  bool Has(const pager::Block& block) const;
  bool Any() const;
  // Whether any heap of the process has some. Takes no lock.
  static bool AnyInProcess();

  // Takes the block that was freed last in the order of `stream`, of this owner and of as many addresses as `bytes`
  // take (pager::AddressesOf). What the stream is given from now on comes behind all that used the block.
  std::optional<pager::Block> TakeFrom(const StreamName& stream, std::uint64_t bytes, const void* owner);

  // Places marks behind the frees that have none. None while a stream captures.
  void Mark();
  // Takes those whose mark has been reached: their memory may be given out again. None while a stream captures.
  std::vector<pager::Block> TakeReached();
  // Takes those that nobody else asks for: places marks behind the frees of streams in which nothing was freed, and
  // whose frees were not taken, since the last call, and takes what was reached of them. Likewise of what was freed
  // while a stream captured. For one thread, now and then.
  std::vector<pager::Block> TakeQuiet();
  // Takes those that were freed while a stream captured; `all`: the others, too, and waits for their marks. The caller
  // waits for the work of their contexts. Not on the pager's thread. None while a stream captures.
  std::vector<UnsettledFree> TakeUnsettled(bool all);

  // The stream of this handle is about to be destroyed. Its work goes on.
  void EndStream(cuda::CUstream stream);
  // The context may be about to end: gives the driver the events back that belong to it. If the context stays, new
  // marks are placed for what is still pending.
  void DropEventsOf(cuda::CUcontext context);
  // The context is about to end, and its blocks and the work in its streams go on as those of `heir`. Gives the driver
  // all its events back: what was freed in its streams waits for the work of `heir`.
  void LeaveContext(cuda::CUcontext context, cuda::CUcontext heir);
  // The context has ended: its blocks are gone, and so is all work in its streams. Null: blocks without a context are
  // gone.
  void ForgetAllOf(cuda::CUcontext context);

 private:
  // An event behind the frees up to the number `upto` of its stream.
  struct Placed {
    cuda::CUevent event = nullptr;
    std::uint64_t upto = 0;
  };
  struct Freed {
    pager::Block block;
    std::uint64_t number = 0;  // of the frees in its stream, from 1 on
  };
  struct Stream {
    cuda::CUcontext context = nullptr;
    std::multimap<std::uint64_t, Freed> frees;        // by the bytes of addresses; the newest of a size last
    std::list<Placed> marks;                          // oldest first
    std::uint64_t last = 0, marked = 0, reached = 0;  // numbers of frees
    bool touched = false;                             // since the last TakeQuiet
  };
  using Streams = std::map<StreamName, Stream>;

  void MarkStream(const StreamName& name, Stream& stream) TESSERA_REQUIRES(mutex_);
  void MarkUnsettled() TESSERA_REQUIRES(mutex_);
  void LookAt(Stream& stream) TESSERA_REQUIRES(mutex_);
  void DropMarks(Stream& stream) TESSERA_REQUIRES(mutex_);
  std::vector<pager::Block> TakeAllReached() TESSERA_REQUIRES(mutex_);
  bool EndsWith(Stream& stream, cuda::CUcontext context) TESSERA_REQUIRES(mutex_);
  void Forget(const pager::Block& block) TESSERA_REQUIRES(mutex_);

  mutable ForkMutex mutex_;
  Streams streams_ TESSERA_GUARDED_BY(mutex_);
  std::list<Stream> ended_ TESSERA_GUARDED_BY(mutex_);               // destroyed with work, or of a whole context
  std::vector<UnsettledFree> unsettled_ TESSERA_GUARDED_BY(mutex_);  // freed during a capture, or behind no mark
  std::vector<pager::Block> reached_ TESSERA_GUARDED_BY(mutex_);
  std::unordered_set<std::uint64_t> ids_ TESSERA_GUARDED_BY(mutex_);  // of all these blocks
  std::map<cuda::CUcontext, std::vector<cuda::CUevent>> spare_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::shim
