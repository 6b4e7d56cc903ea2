// Sums of bytes of memory that moves in chunks.
#pragma once

#include <cstdint>

#include "sched/residency/bytes.h"
#include "wire/line.h"

namespace tessera::server {

using sched::Less;
inline std::uint64_t UpToChunks(std::uint64_t bytes) { return sched::UpTo(wire::kChunkBytes, bytes); }
inline std::uint64_t DownToChunks(std::uint64_t bytes) { return sched::DownTo(wire::kChunkBytes, bytes); }

}  // namespace tessera::server
