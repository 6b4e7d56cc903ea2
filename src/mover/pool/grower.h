#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "mover/pool/pool_growth.h"

namespace tessera::mover {

// A thread that makes and frees the memory of the swap pool, so that the loop waits for neither. One job at a time.
class Grower {
 public:
  struct Outcome {
    PoolGrowth::Job::Kind kind = PoolGrowth::Job::Kind::kNothing;
    Result<HostMemory> made;  // of kMake
  };

  // `may_make` is asked before each slot, on the thread: ENOMEM if others need the memory.
  Grower(Gpu& gpu, std::function<Result<void>()> may_make);
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
  const std::function<Result<void>()> may_make_;
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
