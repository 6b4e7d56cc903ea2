#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "mover/pool/key_table.h"

namespace tessera::mover {

// The swap file: its places, one chunk each, and what programs have there. The daemon keeps the file and its table. For
// the loop's thread, but for Write and Read.
class SwapFile {
 public:
  // `table` (key_table.h) has an entry for each place. A place that an earlier mover used can be claimed until its
  // owner has ended.
  static Result<SwapFile> Open(UniqueFd file, UniqueFd table);
  std::uint64_t total() const { return table_.size(); }
  std::uint64_t used() const { return table_.size() - free_.size(); }

  std::optional<Place> Take(pid_t owner);
  void GiveBack(Place place);
  std::uint64_t KeyOf(Place place) const { return table_[place].key; }

  // The place's program does not talk any more, and may come back with the key.
  void Leave(Place place) { table_.Leave(place); }
  std::optional<Place> Claim(std::uint64_t key, pid_t owner) { return table_.Claim(key, owner); }
  std::uint64_t left() const { return table_.left(); }
  // Frees the places that programs left that have ended. Whether there were any.
  bool Sweep();

  // Any thread. Both move a whole chunk. EIO if the file is shorter than it was.
  Result<void> Write(Place place, std::span<const std::byte> bytes) const;
  Result<void> Read(Place place, std::span<std::byte> bytes) const;

 private:
  SwapFile(UniqueFd file, KeyTable table);

  UniqueFd file_;
  KeyTable table_;
  std::vector<Place> free_;
};

}  // namespace tessera::mover
