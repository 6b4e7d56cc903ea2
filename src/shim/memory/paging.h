// A GPU's memory as the program allocates it where memory may be swapped: the pager's heap, and the thread that answers
// the mover.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/fork_mutex.h"
#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "pager/heap.h"
#include "pager/line_agent.h"
#include "shim/memory/memory_account.h"
#include "shim/memory/room_account.h"
#include "shim/process/condition.h"

namespace tessera::shim {

// The real driver's virtual memory management. It is loaded.
const pager::Driver& RealDriver();

// Waits for the work of a context. One that has failed has none left.
void Settle(cuda::CUcontext context);

// A GPU's memory as the program allocates it where memory may be swapped: a heap, and a thread of its own that answers
// the mover on the line. One per attachment, never destroyed. Any thread.
class Paging {
 public:
  // `gpu_bytes`: the GPU's memory. Null, with a line on stderr, where the driver cannot do it: then memory is the
  // driver's own, and stays where it is.
  static Paging* Make(MemoryAccount& memory, RoomAccount& room, cuda::CUdevice device, std::uint64_t gpu_bytes,
                      UniqueFd line);

  // As cuMemAlloc and cuMemFree of the calling thread's current context. Free waits for the work of the block's
  // context.
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUdeviceptr* address);
  cuda::CUresult Free(cuda::CUdeviceptr address);
  // The context has ended, and what it had: memory with ids below `below`, as Heap().NextId() was before.
  void FreeAllOf(cuda::CUcontext context, std::uint64_t below);

  pager::Heap& Heap() { return *heap_; }
  bool Owns(cuda::CUdeviceptr address) const { return heap_->Owns(address); }
  RoomAccount& Room() { return room_; }
  cuda::CUdevice Device() const { return device_; }

  // The one whose heap `address` belongs to; null for any other address.
  static Paging* Of(cuda::CUdeviceptr address);

  // A new daemon, with a new mover.
  void Follow(UniqueFd line);
  // There is no daemon now, and so no mover that would be right to move anything: gives the line up. Returns when
  // nothing is being copied and every address is valid, but of what lies in the mover's file, or what the driver could
  // not map: Safe tells. Not on the pager's own thread.
  void Retreat();
  // Whether all addresses are valid now.
  bool Safe() const { return heap_->Figures().unsafe == 0; }
  // The process ends: the line is given up, and then nothing of the driver's is called any more. What runs after this
  // may still free memory, and wait for its work. Not on the pager's own thread.
  void Stop();
  void AbandonAfterFork();

 private:
  Paging(MemoryAccount& memory, RoomAccount& room, cuda::CUdevice device)
      : memory_(memory), room_(room), device_(device) {}
  void Wake();

  void FreeUnsettled();
  void FreeNow(const pager::Block& block);

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
  UniqueFd wake_;                    // eventfd: something is for the thread to do
  std::atomic<bool> sleeps_{false};  // the thread waits for that without a time
  std::atomic<bool> stopped_{false};

  UniqueFd line_;  // to the mover; the thread's own

  ForkMutex mutex_;
  UniqueFd next_line_ TESSERA_GUARDED_BY(mutex_);     // that the thread is to follow
  bool serves_ TESSERA_GUARDED_BY(mutex_) = true;     // the thread has not ended
  bool retreats_ TESSERA_GUARDED_BY(mutex_) = false;  // the line is to be given up
  Condition retreated_;                               // and was, or the thread has ended
  // Freed while a stream captured: work on them may not have ended.
  std::vector<pager::Block> unsettled_ TESSERA_GUARDED_BY(mutex_);

  Paging* next_ = nullptr;  // of those in Of
};

}  // namespace tessera::shim
