// Memory that the program allocates and frees in the order of streams (cuMemAllocAsync, cuMemFreeAsync).
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/cuda_abi.h"
#include "shim/gate/gate_keeper.h"
#include "shim/order/graph_blocks.h"
#include "shim/order/stream_name.h"
#include "shim/order/stream_pool.h"

namespace tessera::shim {

class Paging;

// Allocates blocks of one pager's heap for the program's memory pools, so that they can be moved, and frees blocks in
// the order of streams. A block that was freed so can be given out at once to later allocations of the same stream and
// pool, without a driver call; to others when the stream has come there. Any thread.
class StreamMemory {
 public:
  explicit StreamMemory(Paging& paging) : paging_(paging) {}
  StreamMemory(const StreamMemory&) = delete;

  Paging& Pager() const { return paging_; }
  // A context of the heap's device that allocated here and has not ended; null if none is known.
  cuda::CUcontext Context() const { return context_; }

  // As cuMemAllocFromPoolAsync on a stream that does not capture; `bytes` > 0. If the pool, the vGPU or the GPU has no
  // memory left, it waits for the work that uses what was freed, and tries again.
  cuda::CUresult Allocate(StreamPool& pool, std::uint64_t bytes, const StreamName& stream, cuda::CUdeviceptr* address);
  // As cuMemFreeAsync on a stream that does not capture, of any block of the heap. Waits for nothing.
  cuda::CUresult Free(cuda::CUdeviceptr address, const StreamName& stream);

  // A block for an allocation node of a graph, which holds it until `hold` is dropped; `bytes` > 0. Streams may
  // capture.
  cuda::CUresult AllocateForGraph(std::uint64_t bytes, cuda::CUdeviceptr* address, GraphBlocks::Hold** hold);
  GraphBlocks& Graphs() { return graphs_; }

  // As cuMemPoolTrimTo.
  void Trim(StreamPool& pool, std::uint64_t keep);
  // Gives back what pools keep. Whether there was any.
  bool ReleaseKept();

  // Frees what was freed in the order of streams, or that graphs had, and is not in use any more. Not on the pager's
  // own thread: a question about an event may wait for a thread that submits, and that one for the end of a move.
  void FreeReached();
  // The same for streams that the program has left alone, for programs that compute for long and make no other call.
  // Only the pacer calls it, now and then. `gates` are those of the heap's GPU.
  void FreeQuiet(GateKeeper& gates);
  // Makes sure that FreeReached will find all that is freed by now. Returns when no other thread places a mark; while a
  // stream captures, none is placed.
  void Mark();
  // The stream is about to be destroyed; the context may be about to end; it has ended.
  void EndStream(cuda::CUstream stream);
  void DropEvents(cuda::CUcontext context);
  void EndContext(cuda::CUcontext context);
  // The context is about to end, and `heir` has its memory and the work that is left (PendingFrees::LeaveContext).
  void LeaveContext(cuda::CUcontext context, cuda::CUcontext heir);

 private:
  bool Reuse(const pager::Block& block, StreamPool& pool, std::uint64_t bytes);
  void FreeDropped();
  cuda::CUresult AllocateNew(StreamPool& pool, std::uint64_t bytes, cuda::CUdeviceptr* address);

  Paging& paging_;
  GraphBlocks graphs_{*this};
  std::atomic<cuda::CUcontext> context_{nullptr};
};

// StreamMemory's functions of these names, for all GPUs.
void FreeReachedEverywhere();
void MarkEverywhere();
void EndStreamEverywhere(cuda::CUstream stream);
void DropEventsEverywhere(cuda::CUcontext context);
void LeaveContextEverywhere(cuda::CUcontext context, cuda::CUcontext heir);
void EndContextEverywhere(cuda::CUcontext context);

}  // namespace tessera::shim
