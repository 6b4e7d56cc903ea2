#include "mover/suspended/suspended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/line.h"

namespace tessera::mover {
namespace {

Result<void> WriteAll(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FailErrno("write the file of the suspended program");
    if (wrote == 0) return Fail(EIO, "write the file of the suspended program: it takes nothing");
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
  return {};
}

Result<void> ReadAll(int fd, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t read = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return FailErrno("read the file of the suspended program");
    if (read == 0) return Fail(EBADMSG, "the file of the suspended program is shorter than it was");
    bytes = bytes.subspan(static_cast<std::size_t>(read));
    offset += static_cast<std::uint64_t>(read);
  }
  return {};
}

// Cached pages of the file are not wanted: the memory was to come free.
void Uncache(int fd, std::uint64_t offset, std::uint64_t length) {
  const auto from = static_cast<off_t>(offset), bytes = static_cast<off_t>(length);
  (void)sync_file_range(fd, from, bytes,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  (void)posix_fadvise(fd, from, bytes, POSIX_FADV_DONTNEED);
}

// Of `bytes`, which are not empty: the first is 0, and each of the others is as the one before it. The C library
// compares faster than a loop, which reads byte after byte.
bool AnyBit(std::span<const std::byte> bytes) {
  return bytes[0] != std::byte{} || std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) != 0;
}

std::span<const std::byte> UnitOf(std::span<const std::byte> chunk, std::uint32_t first, std::uint32_t count) {
  return chunk.subspan(first * wire::kUnitBytes, count * wire::kUnitBytes);
}

}  // namespace

Result<SuspendedFile> SuspendedFile::Open(UniqueFd file) {
  struct stat status{};
  if (fstat(file.Get(), &status) != 0) return FailErrno("look at the file of the suspended program");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::array<std::byte, sizeof(SuspendedHeader)> head{};
  const std::span some = std::span(head).first(std::min<std::uint64_t>(size, head.size()));
  if (auto read = ReadAll(file.Get(), some, 0); !read) return std::unexpected(read.error());
  const auto header = ReadSuspendedHeader(some, size);
  if (!header) return std::unexpected(header.error());
  std::vector<std::byte> bytes(header->chunks * sizeof(SuspendedChunk));
  if (auto read = ReadAll(file.Get(), bytes, sizeof *header); !read) return std::unexpected(read.error());
  auto table = ReadSuspendedTable(*header, bytes);
  if (!table) return std::unexpected(table.error());
  SuspendedFile opened(std::move(file), *header);
  opened.table_ = std::move(*table);
  opened.end_ = size;
  opened.chunks_ = header->chunks;
  return opened;
}

Result<void> SuspendedFile::Append(std::uint64_t address, std::uint64_t key, std::span<const std::byte> bytes) {
  SuspendedChunk chunk = {.address = address, .key = key, .offset = end_};
  for (std::uint32_t unit = 0; unit < wire::kUnitsPerChunk; ++unit) {
    if (AnyBit(UnitOf(bytes, unit, 1))) chunk.units |= wire::Units{1} << unit;
  }
  if (end_ == DataBegin(chunks_) && ftruncate(file_.Get(), 0) != 0)
    return FailErrno("empty the file of the suspended program");
  // The checksum is of what lies in the file in one piece, so it is made piece by piece.
  chunk.length = wire::BytesOf(wire::Units{chunk.units});
  std::uint64_t offset = end_;
  std::vector<std::uint64_t> sums;
  Result<void> wrote;
  wire::ForEachRun(chunk.units, [&](std::uint32_t first, std::uint32_t count) {
    const auto run = UnitOf(bytes, first, count);
    for (std::uint32_t unit = 0; unit < count; ++unit) sums.push_back(ChecksumOf(UnitOf(run, unit, 1)));
    if (wrote) wrote = WriteAll(file_.Get(), run, offset);
    offset += run.size();
  });
  if (!wrote) return wrote;
  chunk.checksum = ChecksumOf(std::as_bytes(std::span(sums)));
  Uncache(file_.Get(), chunk.offset, chunk.length);
  end_ = offset;
  table_.push_back(chunk);
  return {};
}

// The header goes last: whoever finds it finds all.
Result<void> SuspendedFile::Finish() {
  header_ = SuspendedHeaderOf(header_, table_, end_);
  if (ftruncate(file_.Get(), static_cast<off_t>(end_)) != 0)
    return FailErrno("give the file of the suspended program its length");
  if (auto wrote = WriteAll(file_.Get(), std::as_bytes(std::span(table_)), sizeof header_); !wrote) return wrote;
  if (fdatasync(file_.Get()) != 0) return FailErrno("write the file of the suspended program");
  if (auto wrote = WriteAll(file_.Get(), std::as_bytes(std::span(&header_, 1)), 0); !wrote) return wrote;
  if (fdatasync(file_.Get()) != 0) return FailErrno("write the file of the suspended program");
  return {};
}

Result<void> SuspendedFile::Read(const SuspendedChunk& chunk, std::span<std::byte> bytes) const {
  std::uint64_t offset = chunk.offset;
  std::vector<std::uint64_t> sums;
  for (std::uint32_t unit = 0; unit < wire::kUnitsPerChunk; ++unit) {
    const std::span<std::byte> its = bytes.subspan(unit * wire::kUnitBytes, wire::kUnitBytes);
    if ((chunk.units >> unit & 1) == 0) {
      std::memset(its.data(), 0, its.size());
      continue;
    }
    if (auto read = ReadAll(file_.Get(), its, offset); !read) return read;
    sums.push_back(ChecksumOf(its));
    offset += its.size();
  }
  (void)posix_fadvise(file_.Get(), static_cast<off_t>(chunk.offset), static_cast<off_t>(chunk.length),
                      POSIX_FADV_DONTNEED);
  if (ChecksumOf(std::as_bytes(std::span(sums))) != chunk.checksum)
    return Fail(EBADMSG, "the file of the suspended program was changed: a checksum is wrong");
  return {};
}

Result<void> SuspendedFile::Clear() {
  if (ftruncate(file_.Get(), 0) != 0) return FailErrno("empty the file of the suspended program");
  return {};
}

}  // namespace tessera::mover
