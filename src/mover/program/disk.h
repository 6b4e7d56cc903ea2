#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "mover/pool/pool.h"
#include "mover/pool/swap_file.h"

namespace tessera::mover {

class Program;

// A chunk of a program on its way between a slot and the swap file.
struct FileMove {
  Direction direction = Direction::kOut;  // kOut: to the file
  std::uint64_t chunk = 0;                // the program's name
  Slot slot = 0;
  Place place = 0;
  bool dropped = false;              // the program needs it no more
  std::shared_ptr<Program> program;  // while the disk works at it
};

// A thread that writes and reads the swap file, one chunk after the other, so that neither the loop nor copies between
// GPU and pool wait for the disk.
class Disk {
 public:
  struct Outcome {
    std::shared_ptr<FileMove> move;
    Result<void> result;
  };

  Disk(Gpu& gpu, const SwapFile& file);
  // Waits for the chunk that is under way, and drops the others.
  ~Disk();
  Disk(const Disk&) = delete;

  // `memory` is the slot's, and stays until the move has ended.
  void Start(std::shared_ptr<FileMove> move, const HostMemory& memory);
  // Readable when moves have ended.
  int fd() const { return ended_fd_.Get(); }
  std::vector<Outcome> Finished();

 private:
  struct Job {
    std::shared_ptr<FileMove> move;
    const HostMemory* memory = nullptr;
  };
  void Run();
  Result<void> Do(const Job& job);

  Gpu& gpu_;
  const SwapFile& file_;
  UniqueFd ended_fd_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> jobs_ TESSERA_GUARDED_BY(mutex_);
  std::vector<Outcome> outcomes_ TESSERA_GUARDED_BY(mutex_);
  bool stop_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tessera::mover
