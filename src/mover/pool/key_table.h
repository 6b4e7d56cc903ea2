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
#include "wire/mover.h"

namespace tessera::mover {

using Place = std::uint32_t;

// Who has something in the places of the swap pool, or of the swap file, and under which key. It lies in memory that
// the daemon keeps, as it keeps what is in the places: what programs have there outlives the mover.
//
// A key is what a program shows to the next mover. Each time that something is put into a place it has a new one, and
// nobody can guess one: so nobody gets what is another's.
class KeyTable {
 public:
  struct Entry {
    std::uint64_t key = 0;     // 0: nobody has anything there
    std::int32_t owner = 0;    // pid of who has
    std::uint32_t given = 0;   // of a slot: 1 when a program of `domain` was given its memory
    std::uint64_t domain = 0;  // of a slot
    std::uint64_t memory = 0;  // of a slot: the number of the memory that all this is true of; never the same twice
  };
  static_assert(sizeof(Entry) == wire::kTableEntryBytes);

  // `table`: memory for entries, of which no more than `most` are used.
  static Result<KeyTable> Open(UniqueFd table, std::size_t most = SIZE_MAX);
  KeyTable(KeyTable&& other) noexcept;
  KeyTable& operator=(KeyTable&&) = delete;
  ~KeyTable();

  std::size_t size() const { return entries_.size(); }
  const Entry& operator[](Place place) const { return entries_[place]; }

  // The place has new memory of this number, which nobody was given yet.
  void Reset(Place place, std::uint64_t memory);
  // A program of this domain is about to be given its memory.
  void MarkGiven(Place place, std::uint64_t domain);
  // Something of the owner's is put there. False: there are no random numbers.
  bool Use(Place place, pid_t owner);
  // Nobody has anything there any more.
  void Clear(Place place);

  // Its program does not talk any more, and may come back with the key before `until`.
  void Leave(Place place, Nanos until = kNever) { left_[place] = until; }
  // Whoever may come back without an end may do so until then.
  void Bound(Nanos until);
  // What was left under this key, to a program of `domain` where it is bound to one.
  std::optional<Place> Claim(std::uint64_t key, pid_t owner, std::optional<std::uint64_t> domain = {});
  // What this one left and did not claim is left no longer: the caller has to Clear it.
  std::vector<Place> Abandon(pid_t owner);
  std::uint64_t left() const { return left_.size(); }
  // What is left no longer: because its owner has ended, or because its time is over. The caller has to Clear those.
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
