#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cuda/abi_checkpoint.h"
#include "server/loop/event_loop.h"
#include "wire/checkpoint.h"

namespace tessera::server {

// Takes programs off their GPUs, contexts and all, and puts them on the same or on other GPUs again, by the driver's
// checkpoint calls. What a call has done stays in the program: whoever loses an answer asks State. Requests are done
// one by one, in order. On the loop's thread, and never waits.
//
// Callbacks come from the loop, never within a request, and may destroy the object. It then calls back no more: a call
// under way goes on by itself to its end. Errors that all requests may have:
//   EPIPE            the program that makes the calls has ended during this one
//   ETIMEDOUT        the driver did not answer in time; that program was killed
//   ENOENT, ENODEV   there is no driver, or no GPU
//   EOPNOTSUPP       the driver is too old, or cannot do this for such a program
//   ESRCH            the driver knows no such program: it has ended, or has not used CUDA yet
//   EINVAL           the program is not in the right state
//   ENOTRECOVERABLE  the program is lost: all its CUDA calls fail from now on
//   EIO              another error of the driver
class Checkpointer {
 public:
  using Done = std::function<void(Result<void>)>;
  using StateDone = std::function<void(Result<cuda::CUprocessState>)>;
  virtual ~Checkpointer() = default;

  // A request will come soon: the driver is loaded meanwhile, which takes up to a second or two.
  virtual void Prepare() = 0;
  // Whether a request would not wait for that.
  virtual bool Prepared() const = 0;
  virtual void State(pid_t pid, StateDone done) = 0;
  // RUNNING to LOCKED: waits until the work that the program has queued ends; its further CUDA calls wait from now on.
  // EBUSY: the work did not end within `timeout`; the program is RUNNING again.
  virtual void Lock(pid_t pid, Nanos timeout, Done done) = 0;
  // LOCKED to CHECKPOINTED: brings its GPU memory to host memory and frees all that it has on its GPUs. ENOMEM: the
  // machine has too little memory.
  virtual void Checkpoint(pid_t pid, Done done) = 0;
  // CHECKPOINTED to LOCKED. `pairs`: where it goes from each GPU of the machine, kMostGpuPairs at most; empty: back to
  // where it was. ENOMEM: a GPU has not enough free memory; it stays CHECKPOINTED. E2BIG: too many pairs.
  virtual void Restore(pid_t pid, const std::vector<wire::GpuPair>& pairs, Done done) = 0;
  // LOCKED to RUNNING.
  virtual void Unlock(pid_t pid, Done done) = 0;
};

// A process that makes the calls (src/checkpoint), and the daemon's end of its socket, which does not block.
struct CheckpointProcess {
  pid_t pid = -1;
  UniqueFd socket;
};

// How long each may take.
struct CheckpointLimits {
  Nanos start = 60 * kSecond;  // until the driver is loaded
  Nanos call = 10 * kSecond;   // asking the state, unlocking
  Nanos lock = 5 * kSecond;    // more than the caller's own timeout
  Nanos copy = 120 * kSecond;  // checkpoint and restore: the driver brings out 2 GB/s (docs/hardware-log.md)
  Nanos idle = 10 * kSecond;   // without a request, until the process is ended
};

// A checkpointer with a process of its own, lib/tessera/tessera-checkpoint, which is started when there is a request.
// Programs go at once by several checkpointers. `soft`: by the soft GPU's driver. The loop outlives the object.
std::unique_ptr<Checkpointer> MakeCheckpointer(EventLoop& loop, bool soft);

// The same with another process, for tests.
using StartCheckpointProcess = std::function<Result<CheckpointProcess>()>;
std::unique_ptr<Checkpointer> MakeCheckpointer(EventLoop& loop, StartCheckpointProcess start,
                                               const CheckpointLimits& limits);

}  // namespace tessera::server
