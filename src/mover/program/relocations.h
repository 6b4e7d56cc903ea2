#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "mover/program/copier.h"
#include "mover/program/stored_chunks.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// Copies what a program left in place, on this GPU or another one, to slots of host memory, while the program needs
// nothing of it: then its GPU memory is free. The chunks keep their keys; the program does not hear of it. For the
// loop's thread.
class Relocations {
 public:
  // Both outlive this object.
  Relocations(const ProgramContext& context, StoredChunks& stored)
      : context_(context), place_(context.place), stored_(stored) {}

  // Memory in place goes to host memory until Stop, also memory that the program leaves there later.
  void Begin() { wanted_ = true; }
  void Stop() { wanted_ = false; }
  void GoOn();
  void OnCopied(const std::shared_ptr<Batch>& batch);
  // There will be no more free slots than there are: the rest stays where it is.
  void Starve();

  // Chunks for which slots are needed.
  std::uint64_t Demand() const { return wanted_ ? InPlace() : 0; }
  // Copies are under way: the chunks are in no slot for good.
  bool Busy() const { return !moving_.empty(); }
  // Nothing is left to be done, or it cannot be.
  bool Idle() const { return !Busy() && (!wanted_ || InPlace() == 0); }

 private:
  bool LiesInPlace(const Stored& stored) const;
  // Those that are not being copied.
  std::uint64_t InPlace() const;
  bool Start(const std::vector<std::uint64_t>& chunks);

  const ProgramContext& context_;
  Workplace& place_;
  StoredChunks& stored_;
  bool wanted_ = false;
  std::set<std::uint64_t> moving_;  // chunks
};

}  // namespace tessera::mover
