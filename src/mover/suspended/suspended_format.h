// The head of the file of a suspended program, as docs/suspended-file.md describes it: a header, and a table of what
// lies in the rest. A change here needs a new kSuspendedVersion. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "wire/mover.h"

namespace tessera::mover {

inline constexpr std::uint32_t kSuspendedVersion = 1;
// Programs have 512 TiB of addresses, so there are no more chunks.
inline constexpr std::uint64_t kMostSuspendedChunks = 8u << 20;

// A chunk in the file: of the units in `units` the bytes, one unit behind the other. Those of other units are 0.
struct SuspendedChunk {
  std::uint64_t address = 0;  // the program's name for it
  std::uint64_t key = 0;      // the key under which the program looks for it
  std::uint64_t offset = 0;   // of its bytes, from the file's begin
  std::uint64_t length = 0;   // of its bytes
  std::uint64_t checksum = 0;
  std::uint32_t units = 0;  // wire::Units
  std::uint32_t zero = 0;
};
static_assert(sizeof(SuspendedChunk) == 48 && std::has_unique_object_representations_v<SuspendedChunk>);

// The file begins with it, and the table follows. Where it has no magic the file was not finished.
struct SuspendedHeader {
  static constexpr std::uint64_t kMagic = 0x444e505553534554;  // "TESSUPND"

  std::uint64_t magic = kMagic;
  std::uint32_t version = kSuspendedVersion;
  std::uint32_t pid = 0;          // of the program, as the daemon sees it
  std::uint64_t start = 0;        // when that was started, in clock ticks since boot
  std::uint64_t chunk_bytes = 0;  // of addresses that a chunk takes
  std::uint64_t unit_bytes = 0;   // a part of a chunk
  std::uint64_t chunks = 0;       // entries of the table
  std::uint64_t file_bytes = 0;   // of the whole file
  wire::SuspendedGpu gpu;         // where the program was
  std::uint64_t table_checksum = 0;
  std::uint64_t checksum = 0;  // of the header, with a 0 here
};
static_assert(sizeof(SuspendedHeader) == 208 && std::has_unique_object_representations_v<SuspendedHeader>);
static_assert(offsetof(SuspendedHeader, gpu) == 56 && offsetof(SuspendedHeader, table_checksum) == 192);

// XXH3, 64 bits.
std::uint64_t ChecksumOf(std::span<const std::byte> bytes);

// Where the first chunk's bytes may lie in a file of so many chunks.
constexpr std::uint64_t DataBegin(std::uint64_t chunks) {
  constexpr std::uint64_t kPage = 4096;
  return (sizeof(SuspendedHeader) + chunks * sizeof(SuspendedChunk) + kPage - 1) / kPage * kPage;
}

// The header for such a table, which gives it its sizes and checksums. Of `of` the program and the GPU count.
SuspendedHeader SuspendedHeaderOf(SuspendedHeader of, std::span<const SuspendedChunk> table, std::uint64_t file_bytes);

// A file's header, if this version can read it and a file of so many bytes can have it. ENODATA: the file was not
// finished, or was emptied. EBADMSG: it is no such file, of another version, was changed, or is too short.
Result<SuspendedHeader> ReadSuspendedHeader(std::span<const std::byte> bytes, std::uint64_t file_bytes);
// The table of a file with that header. EBADMSG: it was changed, or names places that the file does not have.
Result<std::vector<SuspendedChunk>> ReadSuspendedTable(const SuspendedHeader& header, std::span<const std::byte> bytes);

}  // namespace tessera::mover
