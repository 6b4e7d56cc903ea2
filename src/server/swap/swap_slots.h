#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/result.h"
#include "base/unique_fd.h"

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
  // One that cannot be kept is lost to the next mover, and nothing else: what programs have there stays theirs. All
  // GPUs' slots take a quarter of the descriptors that the process may have at most.
  void Keep(std::uint64_t number, UniqueFd memory);
  void Forget(std::uint64_t number);

  struct Slot {
    std::uint64_t number = 0;
    int memory = -1;
  };
  // The one with the least number that is greater.
  std::optional<Slot> After(std::uint64_t number) const;

 private:
  SwapSlots() = default;

  UniqueFd table_;
  std::map<std::uint64_t, UniqueFd> slots_;
};

}  // namespace tessera::server
