// Learns the end of a context's work where the driver has no markers.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

// A thread of the shim's own that waits for all work of one context with cuCtxSynchronize, which covers every stream of
// it. It begins with the first question, never ends, and takes no mutex of the shim's. Questions, Reset and Stop: under
// the gate keeper's mutex. The other functions: any thread. Never destroyed.
class EndWatch {
 public:
  // Asks for the end of the work that `context` has now; `count` are the submissions that this is. It is answered after
  // the questions before it.
  void Ask(cuda::CUcontext context, std::int64_t count);
  // Whether the last question has no answer yet.
  bool Pending() const { return done_.load() != asked_.load(); }
  // Whether the last answer is that exactly the first `count` submissions have ended. If a stream captures, or the
  // thread cannot be started, that is not known.
  bool Ended(std::int64_t count) const { return !Pending() && ended_.load() == count; }
  // Returns when no question is pending: then the thread does not use the context. It takes as long as the work.
  void Await() const;

  // Returns when no wait can collide with a capture that was counted before (AddCapture): none begins any more, and one
  // that was about to begin has had 2 ms to get into the driver. There the capture may begin (docs/hardware-log.md).
  void Settle() const;
  // The context is gone: nothing is known to have ended, whatever the thread still waits for.
  void Reset();
  // The process ends: no wait begins any more, and one that is under way is waited for, 50 ms at most.
  void Stop();

 private:
  static constexpr std::int64_t kNone = -1;

  static void* Main(void* self);
  void Answer(std::uint32_t question, std::int64_t ended);
  // Waits for the context's work. False: a stream captures, the process ends, or there is no context.
  bool Wait();

  bool started_ = false;
  // The last question. It is complete when `asked_` counts it.
  std::atomic<cuda::CUcontext> context_{nullptr};
  std::atomic<std::int64_t> count_{0};
  std::atomic<std::uint32_t> asked_{0};
  std::atomic<std::uint32_t> done_{0};      // of `asked_`, those that are answered
  std::atomic<std::int64_t> ended_{kNone};  // the last answer: so many submissions have ended
  std::atomic<bool> calling_{false}, stopped_{false};
};

}  // namespace tessera::shim
