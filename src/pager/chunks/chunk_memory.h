#pragma once

#include <cstdint>
#include <vector>

#include "pager/chunks/driver.h"
#include "pager/chunks/sparse_memory.h"

namespace tessera::pager {

// Memory of chunks as the driver makes and maps it, for one device and the peers that may reach it. Not thread-safe.
class ChunkMemory {
 public:
  using Handle = Driver::Handle;

  // `rdma`: GPU memory is made fit for GPUDirect RDMA. The driver outlives this object.
  ChunkMemory(const Driver& driver, cuda::CUdevice device, bool rdma);

  cuda::CUresult Make(std::uint64_t bytes, Handle* handle) const;
  cuda::CUresult Map(std::uint64_t address, std::uint64_t bytes, Handle handle) const;
  // Lets the device and its peers reach what is mapped there. One call for many chunks costs little more than one for
  // one chunk.
  cuda::CUresult GiveAccess(std::uint64_t address, std::uint64_t bytes) const;
  void Unmap(std::uint64_t address, std::uint64_t bytes) const;
  // Unmaps units of the chunk at `address`.
  void UnmapUnits(std::uint64_t address, Units units) const;
  void Release(Handle handle) const;
  // A descriptor of the memory, the caller's. Memory that was imported cannot be exported.
  cuda::CUresult Export(Handle handle, int* fd) const;
  cuda::CUresult Import(int fd, Handle* handle) const;

  // From now on GiveAccess means this device, too. False: it did before.
  bool AddDevice(cuda::CUdevice device);
  // Takes the device back that was added last.
  void RemoveLastDevice() { access_.pop_back(); }

  // The driver is ending: what is mapped or held is not given back to it any more.
  void Stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  const Driver& driver_;
  const cuda::CUdevice device_;
  const bool rdma_;
  bool stopped_ = false;
  std::vector<cuda::CUmemAccessDesc> access_;
};

}  // namespace tessera::pager
