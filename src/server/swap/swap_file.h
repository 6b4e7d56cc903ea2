#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::server {

// Descriptors that the daemon keeps for movers are not at the numbers where movers look for them: they are put there
// when a mover is started.
UniqueFd OutOfTheWay(UniqueFd fd);

// The second tier of one GPU's swap pool. The daemon has it made and keeps it, so that what programs have in it
// outlives their mover; only movers read and write it.
struct SwapFile {
  UniqueFd file;   // without a name: nobody else can open it
  UniqueFd table;  // the movers' notes of who has what in it
  std::uint64_t bytes = 0;
};

// Makes a file of `bytes` (rounded down to chunks) in the folder of `path`, with all its space reserved: a disk that is
// full later is nothing to it. Takes that name only where the file system cannot do without, and for a moment: EEXIST
// if there is such a file then.
Result<SwapFile> MakeSwapFile(const std::string& path, std::uint64_t bytes);

}  // namespace tessera::server
