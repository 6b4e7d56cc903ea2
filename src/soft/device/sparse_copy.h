#pragma once

#include <sys/types.h>

#include <cstdint>

namespace tessera::soft {

// A copy of memory, piece by piece. Pages of cuMemCreate that were never written are zeros and take no memory, and are
// not made by a copy on either side: most of a chunk of a test's program is such pages. Of one thread.
class SparseCopy {
 public:
  // As memmove, of memory that the calling thread may touch now.
  void Copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes);

 private:
  struct Piece;
  bool CopyPiece(const Piece& piece);
  off_t NextData(const Piece& piece, off_t from) const;
  off_t NextHole(const Piece& piece, off_t from);

  // What the source has written, as far as that is known: to look for its end again for each piece would take longer
  // than the copy. What became a hole since is zeros, whether it counts as written or not.
  int file_ = -1;
  off_t data_ = 0, hole_ = 0;
};

}  // namespace tessera::soft
