#pragma once

#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "server/swap/swap_file.h"
#include "server/swap/swap_slots.h"

namespace tessera::server {

// The swap pool of a daemon that ended, which the swap holder has.
struct KeptSwap {
  SwapSlots slots;
  SwapFile file;    // of no bytes if there was none
  UniqueFd holder;  // the socket to the holder, which goes on for this daemon; empty if it ended
};

// Takes it from the holder that listens at `path`, and waits until the earlier daemon's mover has ended. None if there
// is no such holder, if it has nothing, or if what it has is of another version of Tessera. Waits for 10 s at most. The
// holder drops the slots that this daemon has no descriptors for, and the log says so.
std::optional<KeptSwap> TakeKeptSwap(const std::string& path);

}  // namespace tessera::server
