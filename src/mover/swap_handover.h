#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::mover {

// What the daemon keeps for movers, kept for the next daemon by the mover that lost its own.
struct Bequest {
  int slots_table = -1;
  int file = -1, file_table = -1;                    // -1: there is no swap file
  std::vector<std::pair<std::uint64_t, int>> slots;  // numbers and descriptors
};

// A socket of this name in the run directory, at which the next daemon asks for it (wire/mover.h says how). The name
// stays there after it; one that a mover before left is no more.
Result<UniqueFd> ListenForHeirs(const std::string& path);

// Gives all of it to the daemon that asks, if that is of the same user. True: one has it. False: nobody came for
// `patience`, or `needed`, which is asked each second, said no.
bool GiveToHeir(int listener, const Bequest& bequest, Nanos patience, const std::function<bool()>& needed);

}  // namespace tessera::mover
