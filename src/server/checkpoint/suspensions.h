#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/checkpoint/suspension.h"
#include "server/gpu/gpu_server.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// The programs that are off their GPUs, or on their way. Runs on the loop's thread.
class Suspensions {
 public:
  using Gpus = std::vector<std::unique_ptr<GpuServer>>;
  using MakeCheckpointer = std::function<std::unique_ptr<Checkpointer>()>;

  // The loop, the GPUs and the files outlive the object.
  Suspensions(EventLoop& loop, const Gpus& gpus, SuspendedFiles& files, MakeCheckpointer make,
              const Suspension::Bounds& bounds = {});
  Suspensions(const Suspensions&) = delete;

  // kOtherGpu: to memory, and the next daemon brings it back if this one ends meanwhile. kOtherGpuInPlace: likewise,
  // and what Tessera moves stays in the GPU's memory, where the program holds nothing of it.
  enum class To { kMemory, kFile, kOtherGpu, kOtherGpuInPlace };
  // Whether Suspend would begin.
  Result<void> Check(pid_t pid, To to = To::kMemory) const;
  // Begins to take the program off its GPUs; it is away when its phase says so. Nothing is done if it is away, or on
  // its way there; but what it has in host memory goes to a file if it is to be there. EBUSY: it is on its way back.
  // ENOTSUP: there is no mover that could write a file. Other errors are those of Suspension::Begin. `by_itself`: as it
  // is idle, and its first call is to bring it back; what is so already stays until Resume if it is asked for
  // otherwise, but for a migration.
  Result<void> Suspend(pid_t pid, Nanos now, To to = To::kMemory, bool by_itself = false);
  // A process is about to join its vGPU. If its program says that an earlier daemon had it away from its GPUs
  // (SuspensionState::claimed), or this one has, it does not run before that is over.
  void Joining(Process& process, Nanos now);
  // Begins to bring it back; nothing is done where it is on its GPUs.
  void Resume(pid_t pid, Nanos now);
  // What came of all suspensions, and of the migrations that these are for.
  MovingFigures& Figures() { return figures_; }
  // Null: the program is not suspended.
  const Suspension* Find(pid_t pid) const;

 private:
  void Step();

  const Gpus& gpus_;
  SuspendedFiles& files_;
  const MakeCheckpointer make_;
  const Suspension::Bounds bounds_;
  MovingFigures figures_;
  std::map<pid_t, std::unique_ptr<Suspension>> programs_;
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
