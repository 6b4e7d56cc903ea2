#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "mover/program/disk.h"

namespace tessera::mover {

// A chunk that is out.
struct Stored {
  // Where it is.
  enum class Tier {
    kSlot,
    kLoading,  // in a slot, and on its way to the GPU
    kFiling,   // in a slot, and on its way to the file
    kFile,
    kReading,  // in the file, and on its way to a slot
  };
  Tier tier = Tier::kSlot;
  std::uint64_t number = 0;        // as Workplace::stored counts
  Slot slot = 0;                   // but in kFile
  Place place = 0;                 // kFile
  std::shared_ptr<FileMove> move;  // kFiling and kReading
};

// Those of one program, by its names for them. How many there are of a tier is asked in every turn of the loop, so it
// is counted as they change.
class StoredChunks {
 public:
  using Tier = Stored::Tier;

  // Null if there is none of this name.
  Stored* Find(std::uint64_t chunk) {
    const auto found = chunks_.find(chunk);
    return found == chunks_.end() ? nullptr : &found->second;
  }
  Stored& At(std::uint64_t chunk) { return chunks_.at(chunk); }
  // There is none of this name.
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
  // `is` is called with each chunk and its name.
  template <typename Is>
  void EraseIf(Is is) {
    std::erase_if(chunks_, [&](const auto& each) {
      const bool erased = is(each.first, each.second);
      counts_[Index(each.second.tier)] -= erased ? 1 : 0;
      return erased;
    });
  }

  std::uint64_t Count(Tier tier) const { return counts_[Index(tier)]; }
  bool Empty() const { return chunks_.empty(); }
  auto begin() { return chunks_.begin(); }
  auto end() { return chunks_.end(); }
  auto begin() const { return chunks_.begin(); }
  auto end() const { return chunks_.end(); }

 private:
  static std::size_t Index(Tier tier) { return static_cast<std::size_t>(tier); }

  std::map<std::uint64_t, Stored> chunks_;
  std::array<std::uint64_t, 5> counts_{};  // by Tier
};

}  // namespace tessera::mover
