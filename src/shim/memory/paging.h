// A GPU's memory as the program allocates it where memory may be swapped: the pager's heap, and the thread that answers
// the mover.
#pragma once

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "pager/heap.h"
#include "pager/line_agent.h"

namespace tessera::shim {

class Attachment;

// The real driver's virtual memory management. It is loaded.
const pager::Driver& RealDriver();

// Waits for the work of a context. One that has failed has none left.
void Settle(cuda::CUcontext context);

// One per attachment, never destroyed. Any thread.
class Paging : public pager::Room {
 public:
  // Null, with a line on stderr, where the driver cannot do it: then memory is the driver's own, and stays where it is.
  static Paging* Make(Attachment& attachment, cuda::CUdevice device, UniqueFd line);

  // As cuMemAlloc and cuMemFree of the calling thread's current context. Free waits for the work of the block's
  // context.
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUdeviceptr* address);
  cuda::CUresult Free(cuda::CUdeviceptr address);
  // Gives back at once what is kept for later. False: that is nothing.
  bool Trim();
  // The context has ended, and what it had: memory with ids below `below`, as Heap().NextId() was before.
  void FreeAllOf(cuda::CUcontext context, std::uint64_t below);

  pager::Heap& Heap() { return *heap_; }
  bool Owns(cuda::CUdeviceptr address) const { return heap_->Owns(address); }
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
  Paging(Attachment& attachment, cuda::CUdevice device) : attachment_(attachment), device_(device) {}
  bool Take(std::uint64_t bytes) override;
  void Give(std::uint64_t bytes) override;
  void Holds(const pager::HeapFigures& figures) override;
  bool Released() const override;
  void Wake();

  void FreeUnsettled();
  void FreeNow(const pager::Block& block);

  static void* ThreadMain(void* self);
  void Serve();
  bool Answer();
  bool Send(std::vector<pager::LineAgent::Answer>& answers);
  void LoseLine();
  void RetreatIfAsked();
  void AskForLine();

  Attachment& attachment_;
  const cuda::CUdevice device_;
  std::unique_ptr<pager::Heap> heap_;
  std::unique_ptr<pager::LineAgent> agent_;
  UniqueFd wake_;                    // eventfd: something is for the thread to do
  std::atomic<bool> sleeps_{false};  // the thread waits for that without a time
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;                                     // guards what follows
  UniqueFd line_;                                        // used by the thread alone
  UniqueFd next_line_;                                   // that it is to follow
  bool serves_ = true;                                   // the thread has not ended
  bool retreats_ = false;                                // the line is to be given up
  pthread_cond_t retreated_ = PTHREAD_COND_INITIALIZER;  // and was; the C++ library's would want a newer glibc
  std::vector<pager::Block> unsettled_;                  // freed while a stream captured: their work may not have ended
};

}  // namespace tessera::shim
