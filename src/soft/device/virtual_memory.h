#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "soft/shared/handles.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

class Device;

inline constexpr std::uint64_t kVirtualGranule = 2 << 20;

// The memory of the host, in whatever way it is named.
bool OnHost(const cuda::CUmemLocation& location);

// Memory of cuMemCreate: without an address until it is mapped. It lives as long as a handle or a mapping names it.
// That of the device takes up some of it: what can be exported as a hold on it (SharedState::Hold), the rest as a
// charge.
struct PhysicalMemory {
  cuda::CUmemAllocationProp properties = {};
  std::uint64_t bytes = 0;
  Device* charged = nullptr;    // the device that gave it; null for host memory and for what can be exported
  std::int32_t hold = kNoHold;  // of device memory that can be exported
  UniqueFd own_file;            // of memory that can be exported; else it is a part of the process's file
  bool imported = false;        // it is another handle's, and only that one can be exported
  bool exported = false;        // somebody was given a descriptor
  int file = -1;
  std::uint64_t offset = 0;  // in `file`
  int handles = 1;           // cuMemCreate, cuMemRetainAllocationHandle; guarded by VirtualMemory

  PhysicalMemory() = default;
  PhysicalMemory(const PhysicalMemory&) = delete;
  ~PhysicalMemory();
};

// Address space of cuMemAddressReserve and what is mapped there. Thread-safe.
class VirtualMemory {
 public:
  static VirtualMemory& Get();

  cuda::CUresult Reserve(std::uint64_t bytes, std::uint64_t alignment, cuda::CUdeviceptr hint,
                         cuda::CUdeviceptr* address);
  cuda::CUresult Free(cuda::CUdeviceptr address, std::uint64_t bytes);

  cuda::CUresult Create(std::uint64_t bytes, const cuda::CUmemAllocationProp& properties,
                        cuda::CUmemGenericAllocationHandle* handle);
  cuda::CUresult Release(cuda::CUmemGenericAllocationHandle handle);
  // A handle of what is mapped at `address`.
  cuda::CUresult Retain(cuda::CUdeviceptr address, cuda::CUmemGenericAllocationHandle* handle);
  std::shared_ptr<PhysicalMemory> Find(cuda::CUmemGenericAllocationHandle handle);
  // All memory, whether by a handle, mapped, or both.
  std::vector<std::shared_ptr<PhysicalMemory>> All();
  // A file with the contents of memory that can be exported, named as memory `number` (SharedState::NewMemory). Empty
  // if the host has too little. Nothing of the process may use the memory until Replace.
  static UniqueFd CopyOf(const PhysicalMemory& memory, std::uint64_t number);
  // Such a file becomes the memory, at the same addresses: descriptors of before do not lead to it any more.
  void Replace(PhysicalMemory& memory, UniqueFd file);

  // File descriptors, which belong to the caller; Import leaves `file` open.
  cuda::CUresult Export(cuda::CUmemGenericAllocationHandle handle, int* file);
  cuda::CUresult Import(int file, cuda::CUmemGenericAllocationHandle* handle);

  // All of the memory, as a real driver wants it: CUDA_ERROR_NOT_SUPPORTED for parts.
  cuda::CUresult Map(cuda::CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset,
                     cuda::CUmemGenericAllocationHandle handle);
  // The range has to consist of whole mappings.
  cuda::CUresult Unmap(cuda::CUdeviceptr address, std::uint64_t bytes);
  cuda::CUresult SetAccess(cuda::CUdeviceptr address, std::uint64_t bytes, const cuda::CUmemAccessDesc& access);
  cuda::CUresult GetAccess(cuda::CUdeviceptr address, const cuda::CUmemLocation& location, unsigned long long* flags);
  // The reservation around `address`; false if there is none.
  bool RangeOf(cuda::CUdeviceptr address, cuda::CUdeviceptr* begin, std::uint64_t* bytes);

  // Where the memory that is mapped at `address` lies, and how much of it from there on; no bytes if nothing is mapped.
  // The file stays as long as the mapping.
  struct FilePlace {
    int file = -1;
    off_t offset = 0;
    std::uint64_t bytes = 0;
  };
  FilePlace PlaceOf(std::uint64_t address) const;

 private:
  struct Mapped {
    std::uint64_t bytes = 0;
    std::shared_ptr<PhysicalMemory> memory;
    unsigned devices = 0;  // bit set of those that have access
    bool host_access = false;
  };
  using Mappings = std::map<std::uint64_t, Mapped>;

  VirtualMemory() = default;
  // The mappings that make up the range without gaps; empty if they do not.
  std::vector<Mappings::iterator> WholeMappings(std::uint64_t address, std::uint64_t bytes) TESSERA_REQUIRES(mutex_);
  bool InReservation(std::uint64_t address, std::uint64_t bytes) const TESSERA_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> reservations_ TESSERA_GUARDED_BY(mutex_);  // address -> bytes
  Mappings mappings_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::soft
