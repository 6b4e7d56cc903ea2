#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "mover/program/disk.h"

namespace tessera::mover {

// A chunk of a program that is out.
struct Stored {
  // Where it is. In kFile, kReading and all from kParked on it is away: the program holds nothing of it.
  enum class Tier {
    kSlot,
    kLoading,    // in a slot, and being copied to the GPU
    kFiling,     // in a slot, and being copied to the file
    kFile,       // in the file
    kReading,    // in the file, and being copied to a slot
    kParking,    // in a slot, and the program is to give it up
    kParked,     // in a slot, and the program holds nothing of it
    kReturning,  // in a slot, and the program is to hold it again
    kSaving,     // in a slot as kParked, and being copied to the program's own file
    kSaved,      // in that file
    kUnsaving,   // in that file, and being copied to a slot
  };
  Tier tier = Tier::kSlot;
  std::uint64_t number = 0;             // the lower, the longer it has been stored (Workplace::stored)
  Slot slot = 0;                        // in all tiers but kFile and kSaved
  wire::Units units = wire::kAllUnits;  // what of it has contents, as far as this mover knows
  Place place = 0;                      // in kFile; in kSaved and kUnsaving: of the table of the program's own file
  std::shared_ptr<FileMove> move;       // in kFiling, kReading and kUnsaving
};

// The chunks of one program that are out, by its names for them. How many are in a tier is asked in every turn of the
// loop, so it is counted as they change.
class StoredChunks {
 public:
  using Tier = Stored::Tier;

  // Null if there is none of this name.
  Stored* Find(std::uint64_t chunk) {
    const auto found = chunks_.find(chunk);
    return found == chunks_.end() ? nullptr : &found->second;
  }
  // It exists.
  Stored& At(std::uint64_t chunk) { return chunks_.at(chunk); }
  // There is none of this name yet.
  void Add(std::uint64_t chunk, Stored stored) {
    ++counts_[Index(stored.tier)];
    chunks_.emplace(chunk, std::move(stored));
  }
  void Put(Stored& stored, Tier tier) {
    --counts_[Index(stored.tier)];
    ++counts_[Index(stored.tier = tier)];
  }
  void Erase(std::uint64_t chunk) {
    --counts_[Index(At(chunk).tier)];
    chunks_.erase(chunk);
  }
  // `is` is called with each chunk.
  template <typename Is>
  void EraseIf(Is is) {
    std::erase_if(chunks_, [&](const auto& each) {
      const bool erased = is(each.second);
      counts_[Index(each.second.tier)] -= erased ? 1 : 0;
      return erased;
    });
  }

  std::uint64_t Count(Tier tier) const { return counts_[Index(tier)]; }
  // Those of which the program holds nothing, or may hold nothing, and that are in slots.
  static bool IsParked(const Stored& stored) {
    return stored.tier == Tier::kParking || stored.tier == Tier::kParked || stored.tier == Tier::kReturning ||
           stored.tier == Tier::kSaving;
  }
  // Those, and what is in the program's own file: all that comes back before anything else.
  std::uint64_t Parked() const {
    return Count(Tier::kParking) + Count(Tier::kParked) + Count(Tier::kReturning) + Count(Tier::kSaving) +
           Count(Tier::kSaved) + Count(Tier::kUnsaving);
  }
  // Whether some of them are in the file, or on their way there or from there.
  bool AnyFiled() const { return Count(Tier::kFiling) + Count(Tier::kFile) + Count(Tier::kReading) > 0; }
  bool Empty() const { return chunks_.empty(); }
  auto begin() { return chunks_.begin(); }
  auto end() { return chunks_.end(); }
  auto begin() const { return chunks_.begin(); }
  auto end() const { return chunks_.end(); }
  // The first one whose name is not less than this.
  auto From(std::uint64_t chunk) { return chunks_.lower_bound(chunk); }

  // Slots without a chunk that the program may hold the memory of, because its line ended in the middle of a move.
  std::vector<Slot> held;
  // Chunks that the program says are away, though nothing has their keys.
  std::uint64_t lost = 0;
  // The program's driver has not refused to import a slot's memory. If it has, nothing is given to the program any
  // more: what is out of it is parked from the start. So is it where the program was restored on another GPU than it
  // knows.
  bool imports = true;
  // Why a chunk that was away did not come back since the daemon's last wish, errno value.
  int not_back = 0;

 private:
  static std::size_t Index(Tier tier) { return static_cast<std::size_t>(tier); }

  std::map<std::uint64_t, Stored> chunks_;
  std::array<std::uint64_t, 11> counts_{};  // by Tier
};

}  // namespace tessera::mover
