#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "mover/pool.h"

namespace tessera::mover {

class Program;

// Chunks of one program that are copied together: those of one message.
struct Batch {
  struct Entry {
    std::uint64_t chunk = 0;  // the program's name
    Slot slot = 0;
    bool dropped = false;  // the program needs it no more
  };
  Direction direction = Direction::kOut;
  std::shared_ptr<Program> program;
  std::vector<Entry> entries;
  std::unique_ptr<Window> window;  // until the copy has ended
};

// The copies under way, in the order in which they end in each direction.
class Copier {
 public:
  Copier(Gpu& gpu, const Pool& pool) : gpu_(gpu), pool_(pool) {}
  ~Copier();
  Copier(const Copier&) = delete;

  Result<void> Start(const std::shared_ptr<Batch>& batch);
  bool busy() const { return !under_way_[0].empty() || !under_way_[1].empty(); }
  // Those that have ended since the last call.
  Result<std::vector<std::shared_ptr<Batch>>> Finished();

 private:
  Gpu& gpu_;
  const Pool& pool_;
  std::deque<std::shared_ptr<Batch>> under_way_[2];  // by Direction
};

}  // namespace tessera::mover
