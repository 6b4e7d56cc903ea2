#pragma once

#include <atomic>
#include <functional>

#include "base/clock.h"
#include "base/result.h"
#include "server/daemon/report.h"

namespace tessera::server {

// Waits for the memory of vGPUs whose memory.limit was lowered to leave the GPU. Faces call it on their own threads, a
// bounded number at a time. Any thread but the loop's.
class LimitWaits {
 public:
  struct Bounds {
    int most = 3;                    // waits at the same time
    int most_of_users = 1;           // of these, for callers who are no operators
    Nanos patience = 30 * kSecond;   // without progress
    Nanos again = 5 * kMillisecond;  // between two looks
  };
  LimitWaits() = default;
  explicit LimitWaits(Bounds bounds) : bounds_(bounds) {}

  // Looks until the vGPU has no more on its GPU than its limit, and returns that report. EBUSY, with the reason, if
  // some of it cannot be moved, or nothing was for `patience`; the limit holds all the same. EAGAIN if too many wait
  // already; `by_operator`: who asks is one. Errors of `look` end it.
  Result<VGpuReport> Await(const std::function<Result<VGpuReport>()>& look, bool by_operator);

 private:
  const Bounds bounds_;
  std::atomic<int> waiting_{0}, users_waiting_{0};
};

}  // namespace tessera::server
