// A CUDA driver for tests of the shim, in the place of the real one: what the test says has ended has ended.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/testing/fake_driver.h"
#include "shim/load/real.h"

namespace tessera::shim {

// Fills the table of the real driver's functions; those that it does not have answer as a driver without them. One at a
// time may exist. Thread-safe. Device N has the UUID that begins with N + 1.
class FakeCuda {
 public:
  FakeCuda();
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;

  // Puts a function of the test's into the table.
  template <typename Function>
  void Put(unsigned symbol, Function* function) {
    tessera_real_table[symbol] = reinterpret_cast<void*>(function);
  }

  // A context of the device, which the calling thread does not get.
  cuda::CUcontext MakeContext(cuda::CUdevice device);
  static void SetCurrent(cuda::CUcontext context);
  // All that was submitted to the context has ended; or, each submission from now on ends at once.
  void End(cuda::CUcontext context);
  void EndAtOnce(cuda::CUcontext context);
  // As a driver before 555: the context takes no marker.
  void TakeNoMarkers(cuda::CUcontext context);
  // It ends as soon as the calling thread, and no other one, was told by an event that it has not.
  void EndWhenAsked(cuda::CUcontext context);
  bool Works(cuda::CUcontext context) const;  // not all has ended
  // Every later use of the context's events fails.
  void Break(cuda::CUcontext context);

  std::uint64_t Submitted(cuda::CUcontext context) const;
  std::uint64_t Markers(cuda::CUcontext context) const;       // placed so far
  std::uint64_t Synchronized(cuda::CUcontext context) const;  // how often its work was waited for
  std::size_t Allocations() const;                            // of the driver's own, by address, handle or array
  void FailAllocations(bool fail);
  // Events recorded on streams, and questions about events; questions which pool a device has.
  std::uint64_t EventCalls() const;
  std::size_t Events() const;  // that were created and not destroyed
  std::uint64_t PoolQuestions() const;
  // A stream of the current context, with a handle of its own; or one that got the handle of a stream that is gone.
  cuda::CUstream MakeStream();
  void MakeStreamAgain(cuda::CUstream stream);
  // The range that cuMemAdvise was last told to keep in host memory: address and bytes. One thread at a time.
  std::pair<cuda::CUdeviceptr, std::size_t> kept_on_host;
  // Calls that a stream that captures forbids, or that makes no sense.
  std::vector<std::string> Complaints() const;

  // Virtual memory management.
  pager::FakeDriver memory;

 private:
  friend struct FakeCudaCalls;
  struct Context {
    cuda::CUdevice device = 0;
    std::uint64_t submitted = 0, ended = 0, markers = 0, synchronized = 0;
    bool at_once = false, broken = false, no_markers = false;
    std::thread::id ends_for;  // none: for nobody
  };
  struct Event {
    cuda::CUcontext context = nullptr;
    std::uint64_t behind = 0;  // submissions
  };

  mutable Mutex mutex_;
  std::map<cuda::CUcontext, Context> contexts_ TESSERA_GUARDED_BY(mutex_);
  std::map<cuda::CUdevice, cuda::CUcontext> primary_ TESSERA_GUARDED_BY(mutex_);
  std::map<cuda::CUdevice, int> primary_uses_ TESSERA_GUARDED_BY(mutex_);
  std::map<cuda::CUevent, Event> events_ TESSERA_GUARDED_BY(mutex_);
  std::set<std::uint64_t> allocations_ TESSERA_GUARDED_BY(mutex_);
  std::set<cuda::CUstream> capturing_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::string> complaints_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t next_ TESSERA_GUARDED_BY(mutex_) = 0x100000;
  std::map<cuda::CUdevice, cuda::CUmemoryPool> pools_ TESSERA_GUARDED_BY(mutex_);  // other than their default pool
  std::set<cuda::CUstream> gone_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t recorded_ TESSERA_GUARDED_BY(mutex_) = 0, queried_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t pool_questions_ TESSERA_GUARDED_BY(mutex_) = 0;
  bool fail_allocations_ TESSERA_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::shim
