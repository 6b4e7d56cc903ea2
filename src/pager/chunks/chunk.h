#pragma once

#include <cstdint>

#include "base/clock.h"
#include "pager/chunks/driver.h"
#include "pager/chunks/sparse_pointer.h"

namespace tessera::pager {

// Where the memory of a chunk is.
enum class Backing : std::uint8_t {
  kNone,        // the chunk has no memory
  kDevice,      // GPU memory, mapped
  kHost,        // host memory, not mapped: the program must not run
  kHostMapped,  // host memory, mapped: kernels reach it over the bus
  kAway,        // with the mover, under Chunk::key, in its file or in its host memory. The program holds nothing of it,
                // and must not run
};

// State of one chunk of address space. `live` is a part of `Usable`. Region keeps `idle`.
struct Chunk {
  Backing backing = Backing::kNone;
  bool offered = false;         // it is being copied to host memory, or given up to the mover from there
  bool wanted = false;          // it is being copied to the GPU
  bool known = false;           // the mover knows that it is out
  bool adopting = false;        // a new mover was asked whether it has the memory of this chunk, and has not answered
  bool shared = false;          // other processes, or devices, may have its GPU memory mapped
  bool squeezed = false;        // it went out only to come back without its holes
  bool in_slot = false;         // it is away, and not in the mover's file: it can come to the GPU from there
  bool reserved = false;        // its addresses are the program's own (Reservations): a piece has one mapping's memory
  std::uint32_t blocks = 0;     // blocks that lie in it, wholly or in part
  std::uint32_t pins = 0;       // reasons why it must not move
  std::uint32_t devices = 0;    // of `pins`: blocks that a device has
  Units units = 0;              // on the GPU: those with memory; out: those whose contents are out
  Units live = 0;               // those in which blocks lie, or memory of freed blocks that others may still write to
  Units moving = 0;             // those that are being copied, while it is offered on the GPU, or wanted
  Units idle = 0;               // part of `units`: without blocks, and memory that can be given back as it is
  Units cuts = 0;               // part of `live`, where it is reserved: those at which a block begins in it
  Nanos empty_since = 0;        // CLOCK_MONOTONIC: when a block last left units empty
  Driver::Handle handle = 0;    // of its memory in one piece; 0 in kNone and kAway, and where it is sparse
  std::uint32_t shown = 0;      // in this round the mover was shown this memory; 0: it was not
  std::uint64_t key = 0;        // by which any mover finds it while it is out; 0: no mover ever will
  Driver::Handle coming = 0;    // GPU memory that it is copied into; 0 unless `wanted`, and where that is sparse
  SparsePointer sparse;         // its GPU memory, where that is in pieces
  SparsePointer coming_sparse;  // likewise what it is copied into

  bool InHost() const { return backing == Backing::kHost || backing == Backing::kHostMapped; }
  // Whether the mover can bring it to the GPU at once.
  bool MayCome() const { return (InHost() || in_slot) && known && !wanted && live != 0; }
  // Whether it is out for good: no mover has its host memory.
  bool Stranded() const { return InHost() && key == 0; }
  bool Mapped() const { return backing == Backing::kDevice || backing == Backing::kHostMapped; }
  // Units of GPU memory that it is being copied into.
  Units Coming() const { return coming != 0 ? wire::kAllUnits : coming_sparse ? moving : 0; }
  // Whether the mover may have it to copy it out.
  bool MayGo() const { return backing == Backing::kDevice && !offered && !adopting && pins == 0 && blocks > 0; }
  // Units in which a new block may lie without memory being made for it. What is being copied stays as it is.
  Units Usable() const { return backing == Backing::kDevice && offered ? moving : units; }
  // Whether memory can be made for other units: for a chunk on the GPU that stays there.
  bool MayGrow() const { return backing == Backing::kDevice && !offered; }
  // Units that would come free if it went out and came back.
  Units Holes() const { return MayGo() ? units & ~live & ~idle : 0; }
  // Units that it would take beside the live ones if it came back whole; what was squeezed or is reserved does not.
  Units HolesOut() const { return live != 0 && !squeezed && !reserved ? ~live : 0; }
  // Units of a slot of the mover's in which nothing of it lies, where it has one or could get one.
  Units Blank() const { return reserved && live != 0 && pins == 0 && !Stranded() ? ~live : 0; }
};

}  // namespace tessera::pager
