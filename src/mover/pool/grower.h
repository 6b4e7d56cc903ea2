#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "mover/pool/pool.h"

namespace tessera::mover {

// The thread that makes and frees the memory of the swap pool, so that the loop waits for neither. One job at a time.
class Grower {
 public:
  struct Outcome {
    Pool::Job::Kind kind = Pool::Job::Kind::kNothing;
    Result<HostMemory> made;  // of kMake
  };

  // `may_make` is asked before each slot, on the thread: ENOMEM if others need the memory.
  Grower(Gpu& gpu, std::function<Result<void>()> may_make);
  // Waits for the job that is under way.
  ~Grower();
  Grower(const Grower&) = delete;

  // Called when no job is under way.
  void Start(Pool::Job job);
  bool busy() const { return busy_; }
  // Readable when a job has ended.
  int fd() const { return ended_fd_.Get(); }
  // The job that has ended, if one has.
  std::optional<Outcome> Take();

 private:
  void Run();
  Outcome Do(Pool::Job job);

  Gpu& gpu_;
  const std::function<Result<void>()> may_make_;
  UniqueFd ended_fd_;
  bool busy_ = false;  // the loop's thread

  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Pool::Job> job_;    // guarded by mutex_
  std::optional<Outcome> outcome_;  // guarded by mutex_
  bool stop_ = false;               // guarded by mutex_
  std::thread thread_;              // last: it uses all of the above
};

}  // namespace tessera::mover
