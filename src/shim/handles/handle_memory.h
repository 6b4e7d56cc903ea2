// Memory by handle (cuMemCreate) that can move, and the addresses that the program reserves for it
// (cuMemAddressReserve). PyTorch's expandable segments, vLLM's sleep mode and llama.cpp's pool are made of both.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/reservations.h"
#include "shim/handles/physical_memory.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

// All such memory of the process. The functions are those of the driver of nearly the same names. They return nothing
// where the driver itself is to be asked: memory and addresses are its own then.
//
// A handle has no memory until it is mapped (PhysicalMemory). When its mapping ends and the handle does not, its block
// stays where it is, since programs end the handle next. Whatever else a program may do with a handle (map it twice, or
// elsewhere while it has contents; export it; bind it to a multicast object) makes it fixed. Chunks in which something
// is mapped that is not the heap's stay where they are.
//
// Any thread. A call that waits for room holds up the others.
class HandleMemory {
 public:
  using Handle = cuda::CUmemGenericAllocationHandle;
  using Result = std::optional<cuda::CUresult>;
  using DriverUnmap = cuda::CUresult (*)(cuda::CUdeviceptr address, std::size_t bytes);

  static HandleMemory& Instance();

  Result Reserve(cuda::CUdeviceptr* address, std::uint64_t bytes, std::uint64_t alignment, cuda::CUdeviceptr hint,
                 unsigned long long flags);
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

  // CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES of what is mapped at `address`.
  unsigned long long HandleTypesAt(cuda::CUdeviceptr address);

 private:
  using Memory = PhysicalMemory;
  struct Mapping {
    std::uint64_t bytes = 0;
    Memory* memory = nullptr;                                  // null: a handle of the driver's own
    Paging* held = nullptr;                                    // whose chunks are held there
    std::map<cuda::CUdevice, unsigned long long> access = {};  // flags, where it is a block
  };
  using Mappings = std::map<cuda::CUdeviceptr, Mapping>;
  using Range = pager::Reservations::Range;

  HandleMemory() = default;
  static bool IsBlock(const Mappings::value_type& mapping) {
    return mapping.second.memory != nullptr && mapping.second.memory->Place() == mapping.first;
  }
  Memory* Find(Handle handle) TESSERA_REQUIRES(mutex_);
  Mappings::iterator Around(cuda::CUdeviceptr address) TESSERA_REQUIRES(mutex_);
  cuda::CUresult FixMemory(Memory& memory) TESSERA_REQUIRES(mutex_);
  cuda::CUresult MakeOnePiece(Memory& memory) TESSERA_REQUIRES(mutex_);
  cuda::CUresult FixForMulticast(Memory& memory) TESSERA_REQUIRES(mutex_);
  cuda::CUresult FixUnmapped(const Range& range) TESSERA_REQUIRES(mutex_);
  cuda::CUresult MapDriver(Memory* memory, Handle handle, std::uint64_t offset, const Range& range, Paging* reserved)
      TESSERA_REQUIRES(mutex_);
  void EndMapping(Mappings::iterator mapping) TESSERA_REQUIRES(mutex_);
  void EndIfUnused(Memory& memory) TESSERA_REQUIRES(mutex_);

  // Held while a thread waits for room, so taken before all others.
  ForkMutex mutex_;
  std::map<Handle, std::unique_ptr<Memory>> memories_ TESSERA_GUARDED_BY(mutex_);  // ours
  std::map<cuda::CUdeviceptr, Memory*> places_ TESSERA_GUARDED_BY(mutex_);         // of those that are blocks
  // Of our handles anywhere, and of any in our reservations.
  Mappings mappings_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::shim
