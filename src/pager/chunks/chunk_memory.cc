#include "pager/chunks/chunk_memory.h"

#include <algorithm>

namespace tessera::pager {

using namespace cuda;

namespace {

CUmemAccessDesc AccessOf(CUdevice device) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

}  // namespace

ChunkMemory::ChunkMemory(const Driver& driver, CUdevice device, bool rdma)
    : driver_(driver), device_(device), rdma_(rdma), access_{AccessOf(device)} {}

CUresult ChunkMemory::Make(std::uint64_t bytes, Handle* handle) const {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  prop.allocFlags.gpuDirectRDMACapable = rdma_;
  return driver_.Create(handle, bytes, &prop, 0);
}

CUresult ChunkMemory::Map(std::uint64_t address, std::uint64_t bytes, Handle handle) const {
  return driver_.Map(address, bytes, 0, handle, 0);
}

CUresult ChunkMemory::GiveAccess(std::uint64_t address, std::uint64_t bytes) const {
  return driver_.SetAccess(address, bytes, access_.data(), access_.size());
}

void ChunkMemory::Unmap(std::uint64_t address, std::uint64_t bytes) const {
  if (!stopped_) driver_.Unmap(address, bytes);
}

void ChunkMemory::UnmapUnits(std::uint64_t address, Units units) const {
  wire::ForEachRun(units, [&](std::uint32_t first, std::uint32_t count) {
    Unmap(address + first * wire::kUnitBytes, count * wire::kUnitBytes);
  });
}

void ChunkMemory::Release(Handle handle) const {
  if (!stopped_) driver_.Release(handle);
}

CUresult ChunkMemory::Export(Handle handle, int* fd) const {
  return driver_.Export(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

// The driver takes the descriptor as a pointer.
CUresult ChunkMemory::Import(int fd, Handle* handle) const {
  return driver_.Import(handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)),
                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

bool ChunkMemory::AddDevice(CUdevice device) {
  const auto is = [&](const CUmemAccessDesc& access) { return access.location.id == device; };
  if (std::any_of(access_.begin(), access_.end(), is)) return false;
  access_.push_back(AccessOf(device));
  return true;
}

}  // namespace tessera::pager
