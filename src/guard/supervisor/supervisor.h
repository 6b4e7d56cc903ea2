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
#include "guard/record/tree_record.h"

namespace tessera::guard {

// Server of the listeners of programs behind the gate (InstallFilter), with a thread of its own, "tessera-guard". A
// program's call waits until it is answered, so nothing here blocks except the `charge` hook.
//
// The thread gives up CAP_SYS_ADMIN: the driver checks the rights of the process that makes a call, and a call in a
// program's place must not have more rights than a program.
//
// After its end the programs' calls wait as long as anybody else holds their listener, and a supervisor that is started
// with the record of this one goes on with them, also with the call that this one had in hand. If nobody does, such
// calls fail with ENOSYS: the programs get no more memory, and continue to run otherwise.
class Supervisor {
 public:
  // `record`: of the program of the first listener, new or of an earlier supervisor that has ended. What it holds is
  // not charged anew. `boundary`: null for the real driver.
  static Result<std::unique_ptr<Supervisor>> Start(SupervisorHooks hooks, SupervisorOptions options, TreeRecord record,
                                                   std::unique_ptr<KernelBoundary> boundary = nullptr);

  // Ends the thread. It may be in the `charge` hook: the thread that this hook waits for must not call the destructor.
  ~Supervisor();

  // Any thread. Serves the listener from now on. Returns its number, which is never reused.
  std::uint64_t Add(UniqueFd listener);
  // Any thread. Stops serving the listener, soon after the call; then `ended` is not called for it.
  void Remove(std::uint64_t listener);

  // Any thread. Counts since the start.
  IoctlGate::Counts Counts() const;

 private:
  struct Buffers;  // of the kernel's sizes
  struct Listener {
    std::uint64_t id = 0;
    UniqueFd fd;
  };

  Supervisor(std::unique_ptr<KernelBoundary> boundary, TreeRecord record, std::unique_ptr<Buffers> buffers);
  void Run();
  void ServeListeners();
  bool ServeOne(const Listener& listener);
  void Answer(const Listener& listener);
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
  TreeRecord record_;
  std::unique_ptr<Buffers> buffers_;
  bool leaves_ = false;  // a call is left to the next daemon, and so are all that come after it
  std::unique_ptr<IoctlGate> gate_;
  std::vector<Listener> listeners_;
  std::vector<pollfd> watched_;  // wake_, the gate's, and listeners_ in their order

  Mutex mutex_;
  std::vector<std::pair<std::uint64_t, UniqueFd>> added_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> removed_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t last_id_ TESSERA_GUARDED_BY(mutex_) = 0;
  bool stop_ TESSERA_GUARDED_BY(mutex_) = false;

  std::atomic<std::uint64_t> passed_{0}, executed_{0}, refused_{0}, out_of_memory_{0}, unknown_{0};
  std::thread thread_;
};

}  // namespace tessera::guard
