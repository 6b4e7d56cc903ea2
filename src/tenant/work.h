#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tenant/driver.h"

namespace tessera::tenant {

struct WorkShape {
  unsigned blocks = 1;
  unsigned threads = 32;         // per block
  std::uint32_t iterations = 0;  // of every thread in every launch
  std::uint64_t sweep = 0;       // bytes that each launch reads and writes, in place of computing; 0: it computes
};

// Launches of the kernel `work`, or `sweep`, on the default stream, in batches, and proof that each ran exactly once.
class Work {
 public:
  Work(Driver& driver, WorkShape shape);

  // Iterations with which one launch takes about `kernel_time` when the GPU is ours alone. Takes about 10 launches of
  // that length. The launches do not count.
  static std::uint32_t Calibrate(Driver& driver, WorkShape shape, Nanos kernel_time);

  // Submits a batch. Waits first until fewer than `ahead` batches are under way.
  void Submit(unsigned launches, unsigned ahead);
  // Waits for everything submitted.
  void Drain();

  std::uint64_t completed() const { return completed_; }  // launches known to have ended
  // The longest time between the ends of two batches since the last call, as its thread saw them; 0: no two have ended.
  Nanos TakeLongestGap() { return std::exchange(longest_gap_, 0); }
  // Drains and compares every thread's result with what so many launches must give; of a sweep, words from its begin,
  // its middle and its end.
  bool Verify();

 private:
  struct Batch {
    cuda::CUevent end;
    unsigned launches;
  };
  void WaitForOldest();
  bool VerifySweep();

  Driver& driver_;
  const WorkShape shape_;
  cuda::CUfunction kernel_;
  cuda::CUdeviceptr state_ = 0;   // one word per thread, or what is swept
  std::vector<Batch> under_way_;  // oldest first
  std::vector<cuda::CUevent> free_events_;
  std::uint64_t completed_ = 0;
  Nanos ended_at_ = 0;  // the last batch; 0: none
  Nanos longest_gap_ = 0;
};

}  // namespace tessera::tenant
