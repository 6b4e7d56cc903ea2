#pragma once

#include <optional>
#include <string>

#include "server/swap/swap_file.h"
#include "server/swap/swap_slots.h"

namespace tessera::server {

// The swap pool of a daemon that ended, which its mover kept.
struct KeptSwap {
  SwapSlots slots;
  SwapFile file;  // of no bytes if there was none
};

// Takes it from the mover that listens at `path`, and waits until that has ended. None if there is no such mover, if it
// needs nobody, or if it is of another version of Tessera. Waits for it, for 10 s at most.
std::optional<KeptSwap> TakeKeptSwap(const std::string& path);

}  // namespace tessera::server
