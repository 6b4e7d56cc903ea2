#include "soft/device/sparse_copy.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "soft/device/virtual_memory.h"

namespace tessera::soft {
namespace {

using Place = VirtualMemory::FilePlace;

// The first data at `from` or later, or `end`. The descriptors' positions are nobody's.
off_t Data(int file, off_t from, off_t end) {
  const off_t data = lseek(file, from, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? end : from;
  return std::min(data, end);
}

// Writes by the file, which clears no page before and needs no page fault.
bool Write(int file, off_t offset, const std::byte* from, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = pwrite(file, from, bytes, offset);
    if (written <= 0) return false;
    from += written;
    offset += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool Clear(int file, off_t offset, off_t bytes) {
  if (Data(file, offset, offset + bytes) == offset + bytes) return true;
  return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) == 0;
}

}  // namespace

// Either side lies in a file, or does not.
struct SparseCopy::Piece {
  Place to, from;
  std::byte* target;
  const std::byte* source;
  off_t end;  // in the source's file, or as if it were one

  bool Clear(off_t at, off_t bytes) const {
    if (to.file >= 0) return soft::Clear(to.file, to.offset + at, bytes);
    std::memset(target + at, 0, static_cast<std::size_t>(bytes));
    return true;
  }
  bool Put(off_t at, off_t bytes) const {
    const auto length = static_cast<std::size_t>(bytes);
    if (to.file >= 0) return Write(to.file, to.offset + at, source + at, length);
    std::memmove(target + at, source + at, length);
    return true;
  }
};

off_t SparseCopy::NextData(const Piece& piece, off_t from) const {
  const bool known = piece.from.file < 0 || (piece.from.file == file_ && from >= data_ && from < hole_);
  return known ? from : Data(piece.from.file, from, piece.end);
}

// Of data.
off_t SparseCopy::NextHole(const Piece& piece, off_t from) {
  if (piece.from.file < 0) return piece.end;
  if (piece.from.file != file_ || from < data_ || from >= hole_) {
    const off_t hole = lseek(piece.from.file, from, SEEK_HOLE);
    file_ = piece.from.file;
    data_ = from;
    hole_ = hole > from ? hole : piece.end;
  }
  return std::min(hole_, piece.end);
}

bool SparseCopy::CopyPiece(const Piece& piece) {
  const off_t begin = piece.from.offset;
  for (off_t at = begin; at < piece.end;) {
    const off_t data = NextData(piece, at);
    if (data > at && !piece.Clear(at - begin, data - at)) return false;
    at = data < piece.end ? NextHole(piece, data) : piece.end;
    if (at > data && !piece.Put(data - begin, at - data)) return false;
  }
  return true;
}

void SparseCopy::Copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  Place there = VirtualMemory::Get().PlaceOf(to), here = VirtualMemory::Get().PlaceOf(from);
  if (there.bytes < bytes) there = {};
  if (here.bytes < bytes) here = {};
  const Piece piece = {.to = there,
                       .from = here,
                       .target = reinterpret_cast<std::byte*>(to),
                       .source = reinterpret_cast<const std::byte*>(from),
                       .end = here.offset + static_cast<off_t>(bytes)};
  const bool may_overlap = there.file == here.file;  // or neither lies in one
  if (may_overlap || !CopyPiece(piece)) std::memmove(piece.target, piece.source, bytes);
}

}  // namespace tessera::soft
