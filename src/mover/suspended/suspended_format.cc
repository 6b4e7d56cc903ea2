#include "mover/suspended/suspended_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "wire/line.h"

namespace tessera::mover {
namespace {

std::unexpected<Error> Bad(const std::string& why) {
  return Fail(EBADMSG, "the file of the suspended program cannot be used: " + why);
}

std::uint64_t ChecksumOfHeader(SuspendedHeader header) {
  header.checksum = 0;
  return ChecksumOf(std::as_bytes(std::span(&header, 1)));
}

}  // namespace

std::uint64_t ChecksumOf(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

SuspendedHeader SuspendedHeaderOf(SuspendedHeader of, std::span<const SuspendedChunk> table, std::uint64_t file_bytes) {
  of.magic = SuspendedHeader::kMagic;
  of.version = kSuspendedVersion;
  of.chunk_bytes = wire::kChunkBytes;
  of.unit_bytes = wire::kUnitBytes;
  of.chunks = table.size();
  of.file_bytes = file_bytes;
  of.table_checksum = ChecksumOf(std::as_bytes(table));
  of.checksum = ChecksumOfHeader(of);
  return of;
}

Result<SuspendedHeader> ReadSuspendedHeader(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  SuspendedHeader header;
  if (file_bytes == 0) return Fail(ENODATA, "the file of the suspended program is empty");
  if (bytes.size() < sizeof header) return Bad("it is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic == 0) return Fail(ENODATA, "the file of the suspended program was not finished");
  if (header.magic != SuspendedHeader::kMagic) return Bad("it is no such file");
  if (header.version != kSuspendedVersion) return Bad("it is of version " + std::to_string(header.version));
  if (header.checksum != ChecksumOfHeader(header)) return Bad("its header was changed");
  if (header.chunk_bytes != wire::kChunkBytes || header.unit_bytes != wire::kUnitBytes)
    return Bad("its chunks have another size");
  if (header.file_bytes != file_bytes) return Bad("it has another length than it had");
  if (header.chunks > kMostSuspendedChunks || DataBegin(header.chunks) > file_bytes) return Bad("it is too short");
  return header;
}

Result<std::vector<SuspendedChunk>> ReadSuspendedTable(const SuspendedHeader& header,
                                                       std::span<const std::byte> bytes) {
  std::vector<SuspendedChunk> table(header.chunks);
  const std::span<std::byte> own = std::as_writable_bytes(std::span(table));
  if (bytes.size() != own.size()) return Bad("its table is too short");
  if (ChecksumOf(bytes) != header.table_checksum) return Bad("its table was changed");
  std::ranges::copy(bytes, own.begin());
  for (const SuspendedChunk& chunk : table) {
    const bool fits = chunk.offset >= DataBegin(header.chunks) && chunk.offset <= header.file_bytes &&
                      chunk.length <= header.file_bytes - chunk.offset;
    if (!fits || chunk.length != wire::BytesOf(wire::Units{chunk.units}) || chunk.key == 0 || chunk.zero != 0)
      return Bad("its table names what it does not have");
  }
  return table;
}

}  // namespace tessera::mover
