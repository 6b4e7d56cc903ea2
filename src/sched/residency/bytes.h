// Sums of bytes that never wrap, and memory that moves in chunks.
#pragma once

#include <cstdint>

namespace tessera::sched {

// `from` without `bytes`; 0 where that would be less than nothing.
inline std::uint64_t Less(std::uint64_t from, std::uint64_t bytes) { return from > bytes ? from - bytes : 0; }
// `bytes` rounded to whole chunks.
inline std::uint64_t UpTo(std::uint64_t chunk, std::uint64_t bytes) { return (bytes + chunk - 1) / chunk * chunk; }
inline std::uint64_t DownTo(std::uint64_t chunk, std::uint64_t bytes) { return bytes / chunk * chunk; }

}  // namespace tessera::sched
