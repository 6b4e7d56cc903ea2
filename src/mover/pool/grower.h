#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "mover/pool/free_memory.h"
#include "mover/pool/pool_growth.h"

namespace tessera::mover {

// A thread that makes and frees the memory of the swap pool, so that the loop waits for neither. One job at a time. Two
// of them make memory 1.7 times as fast as one, and more no faster (docs/hardware-log.md, 2026-11-23).
class Grower {
 public:
  struct Outcome {
    PoolGrowth::Job::Kind kind = PoolGrowth::Job::Kind::kNothing;
    Result<HostMemory> made;  // of kMake
    Nanos took = 0;
  };
  // kLow gives way to programs (nice 10), but not to all of them as SCHED_IDLE would: on a busy machine others would
  // wait for driver locks that the thread holds.
  enum class Priority { kNormal, kLow };

  // `machine` is looked at before each slot, on the thread.
  Grower(Gpu& gpu, std::function<MachineMemory()> machine, Priority priority = Priority::kNormal);
  // Waits for the job that is under way.
  ~Grower();
  Grower(const Grower&) = delete;

  // Called when no job is under way.
  void Start(PoolGrowth::Job job);
  bool busy() const { return busy_; }
  // Readable when a job has ended.
  int fd() const { return ended_fd_.Get(); }
  // The job that has ended, if one has.
  std::optional<Outcome> Take();

 private:
  void Run();
  Outcome Do(PoolGrowth::Job job);

  Gpu& gpu_;
  const std::function<MachineMemory()> machine_;
  const Priority priority_;
  UniqueFd ended_fd_;
  bool busy_ = false;  // of the loop's thread

  Mutex mutex_;
  CondVar wake_;
  std::optional<PoolGrowth::Job> job_ TESSERA_GUARDED_BY(mutex_);
  std::optional<Outcome> outcome_ TESSERA_GUARDED_BY(mutex_);
  bool stop_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tessera::mover
