#pragma once

#include <cstdint>

#include "base/clock.h"
#include "pager/chunks/driver.h"

namespace tessera::pager {

// Where the memory of a chunk is.
enum class Backing : std::uint8_t {
  kNone,        // the chunk has no memory
  kDevice,      // GPU memory, mapped
  kHost,        // host memory, not mapped: the program must not run
  kHostMapped,  // host memory, mapped: kernels reach it over the bus
  kFile,        // the mover's file, under Chunk::key: the program must not run
};

// State of one chunk of address space.
struct Chunk {
  Backing backing = Backing::kNone;
  bool offered = false;       // it is being copied to host memory, or from there to the file
  bool wanted = false;        // it is being copied to the GPU
  bool known = false;         // the mover knows that it is out
  bool adopting = false;      // a new mover was asked whether it has the memory of this chunk, and has not answered
  bool shared = false;        // other processes, or devices, may have its GPU memory mapped
  std::uint32_t blocks = 0;   // blocks that lie in it, wholly or in part
  std::uint32_t pins = 0;     // reasons why it must not move
  std::uint32_t devices = 0;  // of `pins`: blocks that a device has
  Nanos empty_since = 0;      // CLOCK_MONOTONIC; while it has no blocks
  Driver::Handle handle = 0;  // of its memory; 0 in kNone and kFile
  std::uint64_t key = 0;      // by which any mover finds it while it is out; 0: no mover ever will
  Driver::Handle coming = 0;  // GPU memory that it is copied into; 0 unless `wanted`

  bool InHost() const { return backing == Backing::kHost || backing == Backing::kHostMapped; }
  bool Mapped() const { return backing == Backing::kDevice || backing == Backing::kHostMapped; }
  // Whether the mover may have it to copy it out.
  bool MayGo() const { return backing == Backing::kDevice && !offered && !adopting && pins == 0 && blocks > 0; }
};

}  // namespace tessera::pager
