#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "mover/gpu.h"

namespace tessera::mover {

using Domain = std::uint64_t;
using Slot = std::uint32_t;

// How many chunks of host memory the programs of a domain could use now.
using Demand = std::map<Domain, std::uint64_t>;

// The swap pool: which slots there are, and who may use them. A slot whose descriptor was given to a program is for
// programs of that domain for ever, since a program can keep what it once had; it has to be made anew for others.
// Makes and frees no memory itself: Next() says what should be done.
class Pool {
 public:
  struct Job {
    enum class Kind { kNothing, kMake, kFree };
    Kind kind = Kind::kNothing;
    HostMemory memory;  // kFree: it is the pool's no more
  };

  // How many slots it should have, and how many at most.
  void Aim(std::uint64_t wanted, std::uint64_t most);
  std::uint64_t most() const { return most_; }

  Slot Add(HostMemory memory);
  // Memory that a program of `domain` has already. In use.
  Slot Adopt(HostMemory memory, Domain domain);

  // A free slot for a program of `domain`, if there is one.
  std::optional<Slot> Take(Domain domain);
  std::uint64_t FreeFor(Domain domain) const;
  std::uint64_t FreeSlots() const;  // for whomever
  // What there is too little of for `demand`.
  std::uint64_t Missing(const Demand& demand) const;
  // A program of `domain` is about to be given the slot's descriptor.
  void MarkGiven(Slot slot, Domain domain);
  void GiveBack(Slot slot);
  // Like GiveBack, of a slot that somebody may still write to: it is nobody's any more, and freed.
  void GiveUp(Slot slot);

  const HostMemory& MemoryOf(Slot slot) const { return slots_.at(slot).memory; }
  std::uint64_t total() const { return slots_.size(); }
  std::uint64_t used() const;

  // What is to be done next to make the pool as it should be, and to make room for `demand`.
  Job Next(const Demand& demand);
  // No memory can be made until Resume, or until some is freed.
  void Stop() { stopped_ = true; }
  void Resume() { stopped_ = false; }
  bool stopped() const { return stopped_; }

 private:
  struct State {
    HostMemory memory;
    std::optional<Domain> domain;
    bool given_up = false;
  };
  // The free slots by domain; without one, those that nobody was given yet.
  using Free = std::map<std::optional<Domain>, std::vector<Slot>>;

  Slot Insert(State state);
  std::uint64_t FreeOf(std::optional<Domain> domain) const;
  Job FreeOne(std::optional<Domain> domain);
  Job FreeSlot(Slot slot);

  std::uint64_t wanted_ = 0;
  std::uint64_t most_ = 0;
  bool stopped_ = false;
  Slot next_ = 0;
  std::map<Slot, State> slots_;
  Free free_;
  std::vector<Slot> given_up_;
};

}  // namespace tessera::mover
