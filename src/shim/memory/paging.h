// GPU memory that may be swapped: the pager's heap, and the thread that answers the mover.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/fork_mutex.h"
#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"
#include "pager/line/line_agent.h"
#include "shim/memory/memory_account.h"
#include "shim/memory/room_account.h"
#include "shim/memory/stream_memory.h"
#include "shim/order/pending_frees.h"
#include "shim/process/condition.h"

namespace tessera::shim {

class Paging;

// Whether the process has allocators on two GPUs or more. Takes no lock.
bool SeveralPagings();

// Whether the driver can let `device` reach the heap's memory. False also for what is no device.
bool MayReach(const Paging& paging, cuda::CUdevice device);
// Lets kernels and copies of `device` reach all of the heap, now and later; whether they can. CUDA_ERROR_INVALID_VALUE
// where they never could, as the driver says of a device that there is not (cuMemSetAccess; H200, 580.159.04).
cuda::CUresult AddPeer(Paging& paging, cuda::CUdevice device);
bool Reaches(const Paging& paging, cuda::CUdevice device);

// The real driver's virtual memory management. It is loaded.
const pager::Driver& RealDriver();

// Waits until the work of a context has ended. A context that has failed has no work left.
void Settle(cuda::CUcontext context);

// The allocator of a program's memory on one GPU where memory may be swapped. It has a heap, and a thread that answers
// the mover on the line. One per attachment, never destroyed. Any thread.
class Paging {
 public:
  // `gpu_bytes`: the GPU's memory. Null, with a line on stderr, where the driver cannot do it: then memory is the
  // driver's own, and stays where it is.
  static Paging* Make(MemoryAccount& memory, RoomAccount& room, cuda::CUdevice device, std::uint64_t gpu_bytes,
                      UniqueFd line);

  // As cuMemAlloc and cuMemFree of the calling thread's current context. Free waits for the work of the block's
  // context; of the current one if the block is a pool's.
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUdeviceptr* address);
  cuda::CUresult Free(cuda::CUdeviceptr address);
  // The part that allocates and frees in the order of streams.
  StreamMemory& Ordered() { return ordered_; }
  // Frees what was freed in the order of streams or waits for work, and what pools keep, as far as that can be done
  // now. Whether there was anything.
  bool ReleaseAll();
  // The pager's thread is to see what was freed.
  void Wake();
  // Frees the memory of a context that has ended: blocks with ids below `below`, which was Heap().NextId() before it
  // ended. Null: that of all pools, as the device has no context any more.
  void FreeAllOf(cuda::CUcontext context, std::uint64_t below);

  pager::Heap& Heap() { return *heap_; }
  RoomAccount& Room() { return room_; }
  MemoryAccount& Account() { return memory_; }
  cuda::CUdevice Device() const { return device_; }

  // The allocator whose heap `address` belongs to; null for any other address.
  static Paging* Of(cuda::CUdeviceptr address);
  template <typename Visit>
  static void ForEach(Visit visit) {
    for (Paging* at = all_; at; at = at->next_) visit(*at);
  }

  // A new daemon, or its new mover, has sent this line: uses it from now on.
  void Follow(UniqueFd line);
  // There is no daemon now, so no mover may move anything: closes the line. Returns when nothing is being copied and
  // every address is valid. Addresses of chunks in the mover's file, or that the driver could not map, stay invalid:
  // Safe tells. Not on the pager's own thread.
  void Retreat();
  // Bytes that no allocation uses, and that no large one can have.
  std::uint64_t Lost() const;
  // Whether all addresses are valid now.
  bool Safe() const { return heap_->Figures().unsafe == 0; }
  // The process ends: closes the line; the driver is not called any more. Code that runs after this may still free
  // memory and wait for work. Not on the pager's own thread.
  void Stop();
  void AbandonAfterFork();

 private:
  friend class StreamMemory;
  Paging(MemoryAccount& memory, RoomAccount& room, cuda::CUdevice device)
      : memory_(memory), room_(room), device_(device) {}
  bool Freeable(cuda::CUdeviceptr address, pager::Block* block) const;
  cuda::CUresult AllocateFor(cuda::CUcontext context, std::uint64_t bytes, cuda::CUdeviceptr* address);
  void FreeUnsettled(bool all);
  void FreeNow(const pager::Block& block);
  void GiveBack(const pager::Block& block);

  static void* ThreadMain(void* self);
  void Serve();
  bool Answer();
  void FollowNext();
  bool Send(std::vector<pager::LineAgent::Answer>& answers);
  void LoseLine();
  void RetreatIfAsked();
  void AskForLine();

  MemoryAccount& memory_;
  RoomAccount& room_;
  const cuda::CUdevice device_;
  std::unique_ptr<pager::Heap> heap_;
  std::unique_ptr<pager::LineAgent> agent_;
  UniqueFd wake_;                    // eventfd: there is work for the thread
  std::atomic<bool> sleeps_{false};  // the thread waits on wake_ without a timeout
  std::atomic<bool> stopped_{false};
  PendingFrees pending_;
  StreamMemory ordered_{*this};

  UniqueFd line_;  // to the mover; only the thread uses it

  ForkMutex mutex_;
  UniqueFd next_line_ TESSERA_GUARDED_BY(mutex_);     // the line that the thread uses next
  bool serves_ TESSERA_GUARDED_BY(mutex_) = true;     // the thread has not ended
  bool retreats_ TESSERA_GUARDED_BY(mutex_) = false;  // the thread is to close the line
  Condition retreated_;                               // it has closed the line, or it has ended

  static std::atomic<Paging*> all_;  // only ever longer
  Paging* next_ = nullptr;           // in that list
};

}  // namespace tessera::shim
