#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::mover {

// Descriptors that the daemon keeps for movers. A mover that lost its daemon keeps them for the next one.
struct Bequest {
  int slots_table = -1;
  int file = -1, file_table = -1;                    // -1: there is no swap file
  std::vector<std::pair<std::uint64_t, int>> slots;  // numbers and descriptors
};

// Makes a socket of this name in the run directory, at which the next daemon asks for the bequest (wire/mover.h says
// how). Replaces the socket of an earlier mover; its own name stays there after its end.
Result<UniqueFd> ListenForHeirs(const std::string& path);

// Gives the bequest to the daemon that asks, if that is of the same user. True: a daemon has all of it. False: none
// came for `patience`, or `needed`, which is asked each second, said no.
bool GiveToHeir(int listener, const Bequest& bequest, Nanos patience, const std::function<bool()>& needed);

}  // namespace tessera::mover
