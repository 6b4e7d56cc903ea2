#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "mover/pool/pool.h"

namespace tessera::mover {

class Program;

// Chunks of one program that are copied together: the chunks of one message.
struct Batch {
  struct Entry {
    std::uint64_t chunk = 0;  // the program's name
    Slot slot = 0;
    ChunkPart part;
    bool dropped = false;  // the program needs it no more
    bool parked = false;   // coming in: the program holds nothing of the slot
    Slot from = 0;         // of `relocates`
  };
  Direction direction = Direction::kOut;
  bool away = false;  // going out: the program gets nothing of the slots
  // Of slots of this GPU's memory, where it stays: those that the daemon has not said of whether it keeps them.
  std::size_t not_kept = 0;
  bool relocates = false;  // from slots of this GPU's memory to other slots
  std::shared_ptr<Program> program;
  std::vector<Entry> entries;
  std::unique_ptr<Window> window;  // until the copy has ended
};

// The copies under way, in the order in which they end in each direction. When both directions are busy, copies out are
// quicker: they would be done early, and leave the link to the copies in at the end. So they wait when they are too far
// ahead. For the loop's thread.
class Copier {
 public:
  Copier(Gpu& gpu, Pool& pool) : gpu_(gpu), pool_(pool) {}
  ~Copier();
  Copier(const Copier&) = delete;

  Result<void> Start(const std::shared_ptr<Batch>& batch);
  // Whether a copy is under way or waits.
  bool busy() const { return !under_way_[0].empty() || !under_way_[1].empty() || !held_.empty(); }
  // The batches that have ended since the last call. An error: the GPU can no longer be used.
  Result<std::vector<std::shared_ptr<Batch>>> Finished();

 private:
  bool ComesIn() const { return !under_way_[static_cast<int>(Direction::kIn)].empty(); }
  Result<void> StartNow(const std::shared_ptr<Batch>& batch);

  Gpu& gpu_;
  Pool& pool_;
  std::deque<std::shared_ptr<Batch>> under_way_[2];  // by Direction
  std::deque<std::shared_ptr<Batch>> held_;          // copies out that wait
  std::size_t ahead_ = 0;                            // chunks that began to go out, less those that began to come in
};

}  // namespace tessera::mover
