// The order between blocking streams and the legacy default stream, where the driver keeps none.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"

namespace tessera::shim {

// In a green context all streams are non-blocking, also those that the program makes as blocking ones (H100,
// 580.159.04, with MPS and without): no work on them waits for work on the legacy stream, nor that for theirs. This
// keeps the order by events, for the blocking streams of the process's own green context: each call that gives such a
// stream work, or the legacy one, asks Before first.
//
// Before comes ahead of the driver's call, so the work of a thread whose call may be on its way is not in a join that
// another thread makes meanwhile. A thread's call has returned when it asks Before again. Until then what joins its
// stream joins it each time.
//
// Any thread. Its calls of the driver work in the calling thread's current context, which must be the green one.
class LegacyOrder {
 public:
  enum class Use {
    kWork,  // the call gives the stream something that others may have to wait for
    kWait,  // it only waits for the stream
  };

  // `see_each` makes each submission ask Before, or (false) lets them pass without. It is called with the mutex held.
  explicit LegacyOrder(void (*see_each)(bool each)) : see_each_(see_each) {}
  LegacyOrder(const LegacyOrder&) = delete;

  // Whether there are blocking streams in the process, or one is being made. Takes no lock.
  static bool Any() { return any_.load(std::memory_order_relaxed); }

  // Makes a blocking stream by `make`. A submission that has passed without a question by then, and is not made yet,
  // has as long as `make` takes to get to the driver.
  template <typename Make>
  cuda::CUresult MakeStream(cuda::CUstream* stream, Make make) {
    Expect();
    const cuda::CUresult result = make();
    Made(result == cuda::CUDA_SUCCESS ? *stream : nullptr);
    return result;
  }
  // Whether it is one of the blocking streams.
  bool Has(cuda::CUstream stream) const;
  // The stream is about to be destroyed. The legacy stream waits for its work from now on.
  void EndStream(cuda::CUstream stream);
  // The green context is about to end, and its streams with it.
  void EndAll();

  // A call is about to be made on `stream`, never null, by the thread of that number (gettid): makes the stream wait
  // for the work before it on the other side. Nothing where the stream captures, or is another one. An error is the
  // driver's: the call must not be made.
  cuda::CUresult Before(cuda::CUstream stream, Use use, pid_t thread = ThisThread());
  // As cuStreamQuery: whether the stream's work has ended, and that for which it would have to wait. Gives no stream
  // anything, or a stream that is asked again and again would never be idle.
  cuda::CUresult Query(cuda::CUstream stream, pid_t thread = ThisThread());

  // A child has none of its parent's streams.
  static void AbandonAfterFork() { any_.store(false, std::memory_order_relaxed); }

 private:
  struct Stream {
    cuda::CUevent event = nullptr;  // made at the first join
    std::uint64_t given = 0;        // calls that gave it work
    std::uint64_t joined = 0;       // those for which the legacy stream surely waits
    std::uint64_t legacy = 0;       // calls that gave the legacy stream work, for which this one surely waits
  };
  // What a thread did last. Its call may be on its way.
  struct Last {
    cuda::CUstream stream;
    std::uint64_t number;
  };

  static pid_t ThisThread();

  void Expect();
  void Made(cuda::CUstream stream);
  void Drop(cuda::CUstream stream, const Stream& dropped) TESSERA_REQUIRES(mutex_);
  void EndIfNone() TESSERA_REQUIRES(mutex_);
  void NoteLast(pid_t thread, const Last& last) TESSERA_REQUIRES(mutex_);
  // How many of the calls that gave a stream work have surely returned, none of them behind one that has not.
  std::uint64_t Returned(cuda::CUstream stream, std::uint64_t given) const TESSERA_REQUIRES(mutex_);
  cuda::CUresult JoinInLegacy(cuda::CUstream handle, Stream& stream) TESSERA_REQUIRES(mutex_);
  cuda::CUresult JoinLegacyIn(cuda::CUstream handle, Stream& stream) TESSERA_REQUIRES(mutex_);

  static std::atomic<bool> any_;

  void (*const see_each_)(bool each);
  mutable ForkMutex mutex_;  // taken before GateKeeper's
  std::map<cuda::CUstream, Stream> streams_ TESSERA_GUARDED_BY(mutex_);
  int expected_ TESSERA_GUARDED_BY(mutex_) = 0;  // streams that are being made
  // As Stream::given. What came before the first blocking stream was not counted, and is the first one.
  std::uint64_t legacy_given_ TESSERA_GUARDED_BY(mutex_) = 1;
  std::map<pid_t, Last> last_ TESSERA_GUARDED_BY(mutex_);
  std::size_t most_threads_ TESSERA_GUARDED_BY(mutex_) = kThreads;

  static constexpr std::size_t kThreads = 64;  // in last_, before it is looked who has ended
};

}  // namespace tessera::shim
