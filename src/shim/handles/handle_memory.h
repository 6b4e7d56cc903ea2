// Memory by handle (cuMemCreate) that can move, and the addresses that the program reserves for it
// (cuMemAddressReserve). PyTorch's expandable segments, vLLM's sleep mode and llama.cpp's pool are made of both.
#pragma once

#include <cstdint>
#include <optional>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/reservations.h"
#include "shim/handles/handle_table.h"
#include "shim/handles/in_hand.h"
#include "shim/handles/physical_memory.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

// As cuMemAddressReserve, of addresses where memory can move. Nothing where the driver itself is to be asked. Any
// thread.
std::optional<cuda::CUresult> ReserveAddresses(cuda::CUdeviceptr* address, std::uint64_t bytes, std::uint64_t alignment,
                                               cuda::CUdeviceptr hint, unsigned long long flags);

// All such memory of the process. The functions are those of the driver of nearly the same names. They return nothing
// where the driver itself is to be asked: memory and addresses are its own then.
//
// A handle has no memory until it is mapped (PhysicalMemory). When its mapping ends and the handle does not, its block
// stays where it is, since programs end the handle next. Whatever else a program may do with a handle (map it twice, or
// elsewhere while it has contents; export it; bind it to a multicast object) makes it fixed. Chunks in which something
// is mapped that is not the heap's stay where they are.
//
// Any thread. A call that waits for room holds up only those that mean the same memory or addresses.
class HandleMemory {
 public:
  using Handle = cuda::CUmemGenericAllocationHandle;
  using Result = std::optional<cuda::CUresult>;
  using DriverUnmap = cuda::CUresult (*)(cuda::CUdeviceptr address, std::size_t bytes);

  static HandleMemory& Instance();

  Result FreeAddresses(cuda::CUdeviceptr address, std::uint64_t bytes);

  Result Create(Handle* handle, std::uint64_t bytes, const cuda::CUmemAllocationProp* prop, unsigned long long flags);
  Result Release(Handle handle);
  Result Retain(Handle* handle, cuda::CUdeviceptr address);
  Result Properties(cuda::CUmemAllocationProp* prop, Handle handle);
  Result Export(void* shareable, Handle handle, cuda::CUmemAllocationHandleType type, unsigned long long flags);

  // Also of a handle of the driver's own, into a reservation of ours.
  Result Map(cuda::CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset, Handle handle,
             unsigned long long flags);
  // `driver` unmaps what is the driver's own among it.
  Result Unmap(cuda::CUdeviceptr address, std::uint64_t bytes, DriverUnmap driver);
  // The driver has unmapped these bytes, which are in no reservation of ours.
  void NoteUnmapped(cuda::CUdeviceptr address, std::uint64_t bytes);
  Result SetAccess(cuda::CUdeviceptr address, std::uint64_t bytes, const cuda::CUmemAccessDesc* accesses,
                   std::size_t count);
  Result GetAccess(unsigned long long* flags, const cuda::CUmemLocation* location, cuda::CUdeviceptr address);

  // The driver's own handle of this memory, which is about to be bound to a multicast object, and is fixed, in one
  // piece, from now on; the same handle where it is the driver's.
  cuda::CUresult FixForMulticast(Handle handle, Handle* driver);
  // The same of what is mapped at `address`.
  cuda::CUresult FixForMulticastAt(cuda::CUdeviceptr address);
  // A device (RDMA) is about to have what is mapped in these bytes, as it lies in pieces now.
  void NoteInDevice(cuda::CUdeviceptr address, std::uint64_t bytes);

  // What is mapped around `address`: of our handles anywhere, of any in our reservations.
  std::optional<HandleTable::Mapped> MappedAt(cuda::CUdeviceptr address);

 private:
  using Memory = PhysicalMemory;
  using Range = pager::Reservations::Range;

  HandleMemory() = default;
  void Await(const Range& range) TESSERA_REQUIRES(mutex_);
  Memory* FindFree(Handle handle) TESSERA_REQUIRES(mutex_);
  void LetGoOf(const InHand::Things& things) TESSERA_REQUIRES(mutex_);
  template <typename Act>
  cuda::CUresult WithInHand(Memory& memory, Act act) TESSERA_REQUIRES(mutex_);
  template <typename Act>
  cuda::CUresult WithoutMutex(Act act) TESSERA_REQUIRES(mutex_);
  cuda::CUresult FixMemory(Memory& memory) TESSERA_REQUIRES(mutex_);
  cuda::CUresult MakeOnePiece(Memory& memory) TESSERA_REQUIRES(mutex_);
  cuda::CUresult FixForMulticast(Memory& memory, Handle* driver) TESSERA_REQUIRES(mutex_);
  cuda::CUresult FixUnmapped(const Range& range) TESSERA_REQUIRES(mutex_);
  cuda::CUresult MapInHand(Memory* memory, Handle handle, std::uint64_t offset, const Range& range, Paging* reserved)
      TESSERA_REQUIRES(mutex_);
  cuda::CUresult MapDriver(Memory* memory, Handle handle, std::uint64_t offset, const Range& range, Paging* reserved)
      TESSERA_REQUIRES(mutex_);
  void EndMapping(HandleTable::Mappings::iterator mapping) TESSERA_REQUIRES(mutex_);

  // Taken before all others. The functions above that fix, make or map memory release it meanwhile; the caller has what
  // they work on in hand.
  ForkMutex mutex_;
  InHand in_hand_ TESSERA_GUARDED_BY(mutex_);
  HandleTable table_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::shim
