#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera::mover {

// Opens a file of these bytes as that of a suspended program, and reads all chunks that it says it has. `mended`: with
// the checksums put right where there is a place for them, so that what is behind them is reached. What is wrong with
// what came of it; empty: nothing.
std::string RunSuspendedFile(std::span<const std::uint8_t> bytes, bool mended);

}  // namespace tessera::mover
