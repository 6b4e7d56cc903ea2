#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cuda/cuda_abi.h"
#include "pager/heap/reservations.h"
#include "shim/memory/paging.h"
#include "wire/page.h"

namespace tessera::shim {

// The parts of a range of a reservation stay where they are (Reservations::Hold) until LetGo: all, or none. Waits until
// they are on the GPU; CUDA_ERROR_OUT_OF_MEMORY if there is no room for them.
cuda::CUresult Hold(Paging& paging, const pager::Reservations::Range& range);
void LetGo(Paging& paging, const pager::Reservations::Range& range);
// Gives room back that came free, and wakes the pager's thread, which may have to tell the mover.
void GiveRoom(Paging& paging, std::uint64_t bytes);

// The memory behind one handle of cuMemCreate. First it has only room, and the charge; then it is a block of the heap,
// at the addresses where it was mapped first; or it is *fixed*: the driver's own, in pieces, and stays on the GPU.
//
// Not thread-safe. HandleMemory's mutex guards it; calls that may wait for room (MakeBlock, Fix, MakeOnePiece) are made
// without that, by a thread that has it in hand (InHand).
class PhysicalMemory {
 public:
  using Handle = cuda::CUmemGenericAllocationHandle;

  // Whether memory with these properties can be had so that it moves.
  static bool IsMovable(const cuda::CUmemAllocationProp& prop);

  PhysicalMemory(Paging& paging, const cuda::CUmemAllocationProp& prop, std::uint64_t bytes)
      : paging(paging), prop(prop), bytes(bytes) {}
  PhysicalMemory(const PhysicalMemory&) = delete;

  Paging& paging;
  const cuda::CUmemAllocationProp prop;
  const std::uint64_t bytes;

  int handles = 1, mappings = 0;
  bool in_device = false;  // a device has it (RDMA), or is about to: its pieces stay what they are

  // Takes the charge, and the room as far as it can be had at once: what is too large for that gets its room part by
  // part when it is mapped. False: it is refused.
  bool Take();
  // Gives everything back. Nothing is mapped any more that is fixed.
  void End();

  // It has no memory yet: makes it, at these addresses of a reservation of `paging`. CUDA_ERROR_OUT_OF_MEMORY, or what
  // the driver said.
  cuda::CUresult MakeBlock(cuda::CUdeviceptr address);
  // Where its block begins; 0 if it is none.
  cuda::CUdeviceptr Place() const { return place_; }
  bool HasMemory() const { return place_ != 0 || Fixed(); }

  // From now on its memory is the driver's. If it is a block, and mapped, it stays mapped, and its parts are held.
  cuda::CUresult Fix();
  bool Fixed() const { return !pieces_.empty(); }
  // The driver's handles, one behind the other, with their bytes.
  const pager::Reservations::Pieces& Pieces() const { return pieces_; }
  // It is fixed: makes it one piece. `mapped`: where it is mapped, 0 if it is not; then it must not be mapped anywhere
  // else. The program's work on all GPUs that reach it stands still meanwhile, and there must be room for it twice.
  // CUDA_ERROR_NOT_SUPPORTED, with a line on stderr, if that work does not end, a stream captures or a device has the
  // pieces. Makes the GPU's primary context for a moment if the program has no context there.
  cuda::CUresult MakeOnePiece(cuda::CUdeviceptr mapped);
  // Why it stays where it is, from now on. It is fixed.
  void NoteReason(wire::PinReason reason);

 private:
  using Range = pager::Reservations::Range;

  bool TakeRoom();
  void DropRoom();
  // `blank`: what was planned of it (MemoryAccount::TakeBlank); less what is dropped as parts are made.
  cuda::CUresult MakeParts(cuda::CUdeviceptr address, std::uint64_t& blank);
  cuda::CUresult MakePart(const Range& part);
  cuda::CUresult FixBlock();
  cuda::CUresult MakeDriverMemory(Handle* handle) const;
  cuda::CUresult CopyTo(Handle whole, cuda::CUdeviceptr mapped, cuda::CUcontext context,
                        const std::vector<cuda::CUmemAccessDesc>& accesses) const;
  cuda::CUresult Replace(cuda::CUdeviceptr mapped, const pager::Reservations::Pieces& pieces,
                         const std::vector<cuda::CUmemAccessDesc>& accesses) const;

  std::uint64_t roomed_ = 0;  // bytes of room that have no memory yet
  cuda::CUdeviceptr place_ = 0;
  pager::Reservations::Pieces pieces_;
  wire::PinReason reason_ = wire::PinReason::kVmm;
};

}  // namespace tessera::shim
