#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/swap_table.h"

namespace tessera::mover {

using Place = std::uint32_t;

// Owners and keys of what lies in the slots of the swap pool, or in the places of the swap file. The table lies in
// memory that the daemon keeps, as it keeps the slots and the file: what programs have there outlives the mover. The
// mover may be killed between any two stores.
//
// A program shows the key to the next mover, to get what it has there. A place has a new key, 64 random bits, each time
// that something is put into it, so no program can guess the key of another one's memory. For the loop's thread.
class KeyTable {
 public:
  using Entry = wire::SwapEntry;

  // `table`: memory for entries, of which no more than `most` are used.
  static Result<KeyTable> Open(UniqueFd table, std::size_t most = SIZE_MAX);
  KeyTable(KeyTable&& other) noexcept;
  KeyTable& operator=(KeyTable&&) = delete;
  ~KeyTable();

  std::size_t size() const { return entries_.size(); }
  const Entry& operator[](Place place) const { return entries_[place]; }
  // Whether a living program has something there.
  bool IsUsed(Place place) const;

  // The place has new memory of this number, which no program was given yet.
  void Reset(Place place, std::uint64_t memory);
  // The place has memory that another table is about as well, and what lies there by that table. The owner may come
  // back for it.
  void Set(Place place, const Entry& entry);
  void Mark(Place place, std::uint32_t mark) { entries_[place].marks |= mark; }
  // A program of this domain is about to be given its memory.
  void MarkGiven(Place place, std::uint64_t domain);
  // Something of the owner's is put there, under a new key. False: the kernel gives no random numbers.
  bool Use(Place place, pid_t owner);
  // Likewise something that is parked, under the key that it had elsewhere.
  void UseParked(Place place, pid_t owner, std::uint64_t key);
  // What lies there is parked (wire/swap_table.h), or is no more.
  void Park(Place place, bool parked);
  // The place is free.
  void Clear(Place place);

  // The place's program does not talk any more, and may come back with the key before `until`.
  void Leave(Place place, Nanos until = kNever) { left_[place] = until; }
  // Programs that may come back without an end may do so until then. For what is parked there is no end.
  void Bound(Nanos until);
  // The place that was left under this key, for its new owner. With a `domain`: only if the slot's memory was given to
  // a program of that domain.
  std::optional<Place> Claim(std::uint64_t key, pid_t owner, std::optional<std::uint64_t> domain = {});
  // The places that this program left and did not claim. They are left no longer; the caller has to Clear them.
  std::vector<Place> Abandon(pid_t owner);
  // Likewise the place with the memory of this number, if it is left and shared.
  std::optional<Place> LetGo(std::uint64_t memory);
  bool IsLeft(Place place) const { return left_.contains(place); }
  std::uint64_t left() const { return left_.size(); }
  // Places that are left no longer, because their owner has ended, or because their time is over. The caller has to
  // Clear them.
  struct Unclaimed {
    std::vector<Place> ended, late;
  };
  Unclaimed Sweep(Nanos now);

 private:
  explicit KeyTable(std::span<Entry> entries) : entries_(entries) {}

  std::span<Entry> entries_;  // mapped
  std::map<Place, Nanos> left_;
};

// 64 random bits; 0 if there are none.
std::uint64_t RandomNumber();

}  // namespace tessera::mover
