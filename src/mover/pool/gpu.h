// The work that the mover gives a GPU. The real one is in cuda_gpu.h; tests have one of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/units.h"

namespace tessera::mover {

enum class Direction { kOut, kIn };  // GPU to host, host to GPU

// Pinned host memory of one chunk. A program can import `fd`. Or memory of a GPU (`transit`): of this one or another.
struct HostMemory {
  std::uint64_t handle = 0;
  std::uint64_t address =
      0;  // of the mover's, where it is mapped; 0: another mover made it, and it was not needed here
  UniqueFd fd;
  bool transit = false;
};

// The part of a chunk that is copied, and how its GPU memory comes: in one piece for the whole chunk (`begins` 0), or
// in pieces of these units (wire/units.h).
struct ChunkPart {
  wire::Units units = 0, begins = 0;

  bool whole() const { return begins == 0; }
  // Units that its GPU memory takes.
  std::uint32_t Taken() const { return whole() ? wire::kUnitsPerChunk : wire::CountOf(units); }
};

// GPU memory of up to wire::kMostChunks chunks of a program, mapped side by side for one batch of copies. Its end ends
// the mover's hold on the memory; no copy may be under way then.
class Window {
 public:
  virtual ~Window() = default;
  virtual std::uint32_t chunks() const = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  // Any thread. ENOMEM where the system or the driver gives no more. Takes about 10 ms.
  virtual Result<HostMemory> MakeHost() = 0;
  virtual void FreeHost(HostMemory memory) = 0;
  // Imports and maps memory that another mover made, of the host or, as memory.transit says, of a GPU, unless that is
  // done already: before it is copied to or from. Takes 1.4 ms (docs/hardware-log.md, 2026-11-26). Not by two threads
  // at once. EINVAL: the descriptor is something else.
  virtual Result<void> Reach(HostMemory& memory) = 0;
  // Reaches the memory. Its bytes for the processor, valid as long as the memory exists. EOPNOTSUPP: it is a GPU's.
  virtual Result<std::span<std::byte>> BytesOf(HostMemory& memory) = 0;

  // The rest is for the loop's thread, and does not wait for the GPU.

  // Imports and maps GPU memory of a program: the pieces of all parts, in order, of which more may have come. EINVAL: a
  // descriptor is not memory of this GPU (or, with kAny, of any), or not of its piece's size.
  enum class On { kThis, kAny };
  virtual Result<std::unique_ptr<Window>> Import(On on, std::span<const UniqueFd> fds,
                                                 std::span<const ChunkPart> parts) = 0;

  // Copies the units of each part of `window` to or from `host`, one each. Copies of one direction end in order.
  virtual Result<void> StartCopy(Direction direction, Window& window, std::span<const HostMemory* const> host) = 0;
  // Whether the copy that was started last with this window has ended. An error: the GPU can no longer be used.
  virtual Result<bool> Copied(const Window& window) = 0;
};

}  // namespace tessera::mover
