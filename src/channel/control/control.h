#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "channel/rm/object_table.h"

namespace tessera::channel {

// The channels of one process on one GPU.
struct Target {
  pid_t pid = 0;              // as this process sees it
  int process_fd = -1;        // pidfd, lent by the caller; -1: no slices
  std::vector<Group> groups;  // soft GPUs know the process by its pid and need none
};

// Which channels a freeze takes off the GPU.
enum class Reach {
  kCompute,  // those of engine abi::kEngineGraphics: copies go on (moves of memory need them)
  kAll,
};

// The calls that were made to the driver since the start: of freezes and thaws each batch and what was tried again in
// smaller parts, of slices those that set one. `failures` of all those failed, stale handles not counted.
struct CallCounts {
  std::uint64_t freezes = 0, thaws = 0, slices = 0, failures = 0;
};

// Makes the channels of the GPUs of this machine obey. Each call is a synchronous conversation with the GPU's firmware
// (0.3 to 0.7 ms on NVIDIA): batch them, and make few. One thread at a time.
class Control {
 public:
  virtual ~Control() = default;

  // Takes the channels of these processes off the GPU (what runs is preempted, what is queued stays) or puts them back.
  // Idempotent; channels that no longer exist are no error, nor is a process that is gone. One driver call per
  // abi::kMostChannels channels. All is tried even if something fails; the error is that of the first failure.
  virtual Result<void> Freeze(std::uint32_t gpu, std::span<const Target> targets, Reach reach) = 0;
  virtual Result<void> Thaw(std::uint32_t gpu, std::span<const Target> targets, Reach reach) = 0;

  // Gives the compute groups of a process this hardware timeslice. One driver call per group. Borrows the process's
  // file for the call (pidfd_getfd(2)) and lets go of it at once: a duplicate that stays would keep a dead process's
  // memory. ESRCH: the process is gone. EPERM: this user may not borrow it. ERANGE: less than a microsecond. Slice
  // tells that of the first group, ENOENT if there is none.
  virtual Result<void> SetSlice(std::uint32_t gpu, const Target& target, Nanos slice) = 0;
  virtual Result<Nanos> Slice(std::uint32_t gpu, const Target& target) = 0;

  // Whether it finds a process's channels by itself, as the soft GPU does, so that Target::groups may be empty.
  virtual bool KnowsProcesses() const { return false; }

  // RM's instance number of a GPU, by which ObjectTable::Groups tells GPUs apart. That of no GPU (abi::kNoGpu) if there
  // is no such one.
  virtual std::uint32_t DeviceInstance(std::uint32_t gpu) const = 0;

  virtual CallCounts Counts() const = 0;
};

}  // namespace tessera::channel
