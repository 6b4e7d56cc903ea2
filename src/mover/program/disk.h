#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "mover/pool/gpu.h"
#include "mover/pool/pool.h"

namespace tessera::mover {

// A chunk of a program on its way between a slot and a file.
struct FileMove {
  Direction direction = Direction::kOut;  // kOut: to the file
  std::uint64_t chunk = 0;                // the program's name
  Slot slot = 0;
  Place place = 0;
  bool dropped = false;  // the program needs it no more
};

// A thread that writes and reads files, one job after the other, so that neither the loop nor copies between GPU and
// pool wait for the disk.
class Disk {
 public:
  // Of a job: what the thread does, and what the loop's thread does with the result. The first must only use what does
  // not change meanwhile.
  using Work = std::function<Result<void>()>;
  using Done = std::function<void(const Result<void>&)>;

  Disk();
  // Waits for the job that is under way, and drops the others: they are not done.
  ~Disk();
  Disk(const Disk&) = delete;

  void Start(Work work, Done done);
  // Readable when jobs have ended.
  int fd() const { return ended_fd_.Get(); }
  // Tells of the jobs that have ended. For the loop's thread.
  void Finish();

 private:
  struct Job {
    Work work;
    Done done;
    Result<void> result;
  };
  void Run();

  UniqueFd ended_fd_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> jobs_ TESSERA_GUARDED_BY(mutex_);
  std::vector<Job> ended_ TESSERA_GUARDED_BY(mutex_);
  bool stop_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tessera::mover
