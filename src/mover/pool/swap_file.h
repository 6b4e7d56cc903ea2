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

// The swap file: which places of a chunk it has, and who has something there. The daemon keeps it and its table.
class SwapFile {
 public:
  // `table` (key_table.h) has an entry for each place. What an earlier mover put there is nobody's until it is claimed,
  // or until its owner has ended.
  static Result<SwapFile> Open(UniqueFd file, UniqueFd table);
  std::uint64_t total() const { return table_.size(); }
  std::uint64_t used() const { return table_.size() - free_.size(); }

  std::optional<Place> Take(pid_t owner);
  void GiveBack(Place place);
  std::uint64_t KeyOf(Place place) const { return table_[place].key; }

  // Its program does not talk any more, and may come back with the key.
  void Leave(Place place) { table_.Leave(place); }
  std::optional<Place> Claim(std::uint64_t key, pid_t owner) { return table_.Claim(key, owner); }
  std::uint64_t left() const { return table_.left(); }
  // Frees what programs that have ended left. Whether that was anything.
  bool Sweep();

  // Any thread: what is read or written is a whole chunk. EIO where there is less of it than there should be.
  Result<void> Write(Place place, std::span<const std::byte> bytes) const;
  Result<void> Read(Place place, std::span<std::byte> bytes) const;

 private:
  SwapFile(UniqueFd file, KeyTable table);

  UniqueFd file_;
  KeyTable table_;
  std::vector<Place> free_;
};

}  // namespace tessera::mover
