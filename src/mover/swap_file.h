#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/mover.h"

namespace tessera::mover {

using Place = std::uint32_t;

// The swap file: which places of a chunk it has, who has something there, and under which key. The keys lie in memory
// that the daemon keeps, as it keeps the file: what programs have in it outlives the mover.
//
// A key is what a program shows to the next mover. Nobody can guess one, so nobody reads what is another's.
class SwapFile {
 public:
  // One entry for each place.
  struct Entry {
    std::uint64_t key = 0;    // 0: the place is free
    std::uint64_t owner = 0;  // pid
  };

  static_assert(sizeof(Entry) == wire::kFileEntryBytes);

  // `table` is memory for as many entries as the file has places. What an earlier mover put there is nobody's until it
  // is claimed, or until its owner has ended.
  static Result<SwapFile> Open(UniqueFd file, UniqueFd table);
  SwapFile(SwapFile&& other) noexcept;
  SwapFile& operator=(SwapFile&&) = delete;
  ~SwapFile();

  std::uint64_t total() const { return entries_.size(); }
  std::uint64_t used() const { return entries_.size() - free_.size(); }

  std::optional<Place> Take(pid_t owner);
  void GiveBack(Place place);
  std::uint64_t KeyOf(Place place) const { return entries_[place].key; }

  // Its program does not talk any more, and may come back with the key.
  void Leave(Place place) { left_.insert(place); }
  std::optional<Place> Claim(std::uint64_t key, pid_t owner);
  std::uint64_t left() const { return left_.size(); }
  // Frees what programs that have ended left. Whether that was anything.
  bool Sweep();

  // Any thread: what is read or written is a whole chunk. EIO where there is less of it than there should be.
  Result<void> Write(Place place, std::span<const std::byte> bytes) const;
  Result<void> Read(Place place, std::span<std::byte> bytes) const;

 private:
  SwapFile(UniqueFd file, std::span<Entry> entries);

  UniqueFd file_;
  std::span<Entry> entries_;  // mapped
  std::vector<Place> free_;
  std::set<Place> left_;
};

}  // namespace tessera::mover
