#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "server/devices/gpu_driver.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Waits for faults of the GPUs on a thread of its own, because the driver's wait blocks, and tells the loop of each. A
// driver that tells of none costs no thread. Made and destroyed on the loop's thread.
class FaultWatch {
 public:
  // `on_fault` is called on the loop's thread. Both objects outlive this one.
  FaultWatch(EventLoop& loop, GpuDriver& driver, std::function<void(const GpuFault&)> on_fault);
  FaultWatch(const FaultWatch&) = delete;
  // Waits for the thread, which may take as long as the driver's wait: half a second.
  ~FaultWatch();

 private:
  void Run();
  // False: the watch ends.
  bool Rest();

  EventLoop& loop_;
  GpuDriver& driver_;
  // The loop's calls hold it, and do nothing once the watch has gone.
  const std::shared_ptr<std::function<void(const GpuFault&)>> on_fault_;
  Mutex mutex_;
  CondVar ending_;
  bool ends_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera::server
