#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "mover/suspended/suspended_format.h"

namespace tessera::mover {

// The file of one suspended program on one GPU. It is written once, chunk by chunk: until Finish has ended it is no
// such file. Not for two threads at once.
class SuspendedFile {
 public:
  // A file to be written, in place of whatever `file` has, which stays there until then. `of`: as SuspendedHeaderOf.
  static SuspendedFile Begin(UniqueFd file, const SuspendedHeader& of) { return {std::move(file), of}; }
  // How many chunks will come, at most. To be said first.
  void Expect(std::uint64_t chunks) {
    chunks_ = chunks;
    end_ = DataBegin(chunks);
  }
  // One that was finished. Errors as ReadSuspendedHeader and ReadSuspendedTable; others where it cannot be read.
  static Result<SuspendedFile> Open(UniqueFd file);

  // Appends a chunk; `bytes` are all of its kChunkBytes. Units without a bit set are left out.
  Result<void> Append(std::uint64_t address, std::uint64_t key, std::span<const std::byte> bytes);
  // Writes table and header when all chunks are there, and waits for the disk each time.
  Result<void> Finish();
  // Reads a chunk of the table into kChunkBytes. EBADMSG: its bytes were changed, and what was read is of no use.
  Result<void> Read(const SuspendedChunk& chunk, std::span<std::byte> bytes) const;
  // Gives up what is in the file; its space comes free.
  Result<void> Clear();

  const SuspendedHeader& Header() const { return header_; }
  const std::vector<SuspendedChunk>& Table() const { return table_; }
  std::uint64_t Bytes() const { return end_; }

 private:
  SuspendedFile(UniqueFd file, const SuspendedHeader& header) : file_(std::move(file)), header_(header) {}

  UniqueFd file_;
  SuspendedHeader header_;
  std::vector<SuspendedChunk> table_;
  std::uint64_t end_ = 0;     // of what is written
  std::uint64_t chunks_ = 0;  // that will be in the table
};

}  // namespace tessera::mover
