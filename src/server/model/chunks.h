// Sums of bytes of memory that moves in chunks.
#pragma once

#include <cstdint>

#include "wire/line.h"

namespace tessera::server {

inline std::uint64_t Less(std::uint64_t from, std::uint64_t bytes) { return from > bytes ? from - bytes : 0; }
inline std::uint64_t UpToChunks(std::uint64_t bytes) {
  return (bytes + wire::kChunkBytes - 1) / wire::kChunkBytes * wire::kChunkBytes;
}
inline std::uint64_t DownToChunks(std::uint64_t bytes) { return bytes / wire::kChunkBytes * wire::kChunkBytes; }
// From this part of the GPU's memory on a mover is kept ready, and its pool filled: neither can be had in an instant.
inline std::uint64_t Half(std::uint64_t capacity) { return capacity / 2; }

}  // namespace tessera::server
