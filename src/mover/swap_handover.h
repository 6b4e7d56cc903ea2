#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::mover {

// Descriptors that a mover which lost its daemon hands over to its successor: the next daemon, for the next mover.
struct SwapHandover {
  int slots_table = -1;
  int file = -1, file_table = -1;                    // -1: there is no swap file
  std::vector<std::pair<std::uint64_t, int>> slots;  // numbers and descriptors
};

// Makes a socket of this name in the run directory, at which the next daemon asks for the hand-over (wire/mover.h says
// how). Replaces the socket of an earlier mover; its own name stays there after its end.
Result<UniqueFd> ListenForSuccessor(const std::string& path);

// Hands over to the daemon that asks, if it is of the same user. True: a daemon has all of it. False: none
// came for `patience`, or `needed`, which is asked each second, said no.
bool HandOver(int listener, const SwapHandover& handover, Nanos patience, const std::function<bool()>& needed);

}  // namespace tessera::mover
