#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/swap/left_memory.h"
#include "wire/swap_table.h"

namespace tessera::server {

// The host memory of one GPU's swap pool, as the daemon keeps it for the next mover: each slot's descriptor under the
// number that its mover gave it, and the movers' notes of who has what in it. On one thread.
class SwapSlots {
 public:
  // For a pool of so many bytes at most.
  static Result<SwapSlots> Make(std::uint64_t bytes);
  // With the notes of earlier movers.
  static SwapSlots Over(UniqueFd table);
  SwapSlots(SwapSlots&&) = default;
  SwapSlots& operator=(SwapSlots&&) = default;
  ~SwapSlots();

  int table() const { return table_.Get(); }
  // Makes the table large enough for a pool of so many bytes; never smaller.
  void Fit(std::uint64_t bytes);
  std::size_t count() const { return slots_.size(); }
  // It is told of what is kept. It outlives the object, which does not move from now on.
  void Heed(LeftMemory& left) { left_ = &left; }
  // What is kept next under this number is memory of this GPU, which this program leaves there.
  void NoteLeft(std::uint64_t number, std::uint32_t gpu, pid_t owner) {
    if (left_) left_->Note(number, gpu, owner);
  }
  // Keeps the slot for the next mover. False if it cannot be kept: it is lost to that mover only, programs keep their
  // memory in it. The slots of all GPUs take at most a quarter of the descriptors that the process may have.
  bool Keep(std::uint64_t number, UniqueFd memory);
  void Forget(std::uint64_t number);

  struct Slot {
    std::uint64_t number = 0;
    int memory = -1;
  };
  bool Has(std::uint64_t number) const { return slots_.contains(number); }
  // The kept slot's memory, which stays this object's; -1: it is not kept.
  int MemoryOf(std::uint64_t number) const;
  // The kept slots with something of this program that were lent (wire/mover.h, kLend): the table's entries, whose
  // `memory` is the slot's number. To be called when the mover has said that it has lent them: it changes these entries
  // no more.
  Result<std::vector<wire::SwapEntry>> LentOf(pid_t owner) const;
  // The numbers of kept slots of host memory in which no program has anything, as the table has it just now.
  std::vector<std::uint64_t> Free() const;
  // The slot with the least number above this one.
  std::optional<Slot> After(std::uint64_t number) const;

 private:
  SwapSlots() = default;
  Result<std::vector<wire::SwapEntry>> Entries() const;

  UniqueFd table_;
  LeftMemory* left_ = nullptr;
  std::map<std::uint64_t, UniqueFd> slots_;
};

}  // namespace tessera::server
