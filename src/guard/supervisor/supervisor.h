#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/gate/hooks.h"
#include "guard/gate/ioctl_gate.h"
#include "guard/gate/kernel_boundary.h"

namespace tessera::guard {

// Serves the listeners of the programs behind the gate (InstallFilter) on a thread of its own, "tessera-guard". A
// program's call waits until it is answered, so nothing here waits but the `charge` hook.
//
// The thread gives up CAP_SYS_ADMIN: the driver goes by the rights of whoever makes a call, and what is made in a
// program's place must not be made with more than any program has.
//
// When it ends, what waits and all later calls of those programs fail with ENOSYS: they get no more memory, and
// nothing else happens to them.
class Supervisor {
 public:
  // `boundary` is for tests; null: the real driver.
  static Result<std::unique_ptr<Supervisor>> Start(SupervisorHooks hooks, SupervisorOptions options,
                                                   std::unique_ptr<KernelBoundary> boundary = nullptr);

  // Ends the thread. It may be in the `charge` hook, so whoever that waits for must not be the one who destroys.
  ~Supervisor();

  // Any thread. Serves the listener from now on; returns its number, which is never used again.
  std::uint64_t Add(UniqueFd listener);
  // Any thread. Stops serving it; `ended` is not called for it once this has been seen.
  void Remove(std::uint64_t listener);

  // Any thread; since the start.
  IoctlGate::Counts Counts() const;

 private:
  struct Buffers;  // of the kernel's sizes
  struct Listener {
    std::uint64_t id = 0;
    UniqueFd fd;
  };

  Supervisor(std::unique_ptr<KernelBoundary> boundary, std::unique_ptr<Buffers> buffers);
  void Run();
  void ServeListeners();
  bool ServeOne(const Listener& listener);
  bool TakeRequests();
  void Watch(int fd);
  void End(std::uint64_t id, bool tell);
  void Publish();
  void Wake();

  // Constant after construction.
  std::unique_ptr<KernelBoundary> boundary_;
  std::function<void(std::uint64_t)> ended_;
  UniqueFd wake_;

  // The thread's own.
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<IoctlGate> gate_;
  std::vector<Listener> listeners_;
  std::vector<pollfd> watched_;  // wake_, the gate's, and listeners_ in their order

  Mutex mutex_;
  std::vector<std::pair<std::uint64_t, UniqueFd>> added_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> removed_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t last_id_ TESSERA_GUARDED_BY(mutex_) = 0;
  bool stop_ TESSERA_GUARDED_BY(mutex_) = false;

  std::atomic<std::uint64_t> passed_{0}, executed_{0}, refused_{0}, out_of_memory_{0};
  std::thread thread_;
};

}  // namespace tessera::guard
