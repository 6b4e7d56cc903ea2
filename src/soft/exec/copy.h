// Copies and memsets: every shape of the API reduced to one strided form, checked, and executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"

namespace tessera::soft {

class MemorySteps;

// One side of a copy: rows `pitch` bytes apart in slices `slice_pitch` bytes apart.
struct Box {
  std::uint64_t address = 0;
  std::size_t pitch = 0;
  std::size_t slice_pitch = 0;
  bool on_device = false;  // reached by the host through the PCIe link only
  bool pageable = false;   // host memory that the driver does not know
  bool array = false;
  int device = 0;  // of memory that the driver knows

  std::uint64_t Row(std::size_t y, std::size_t z) const { return address + z * slice_pitch + y * pitch; }
};

struct Copy {
  cuda::CUDA_MEMCPY3D shape;  // as the program gave it
  Box destination;
  Box source;
  std::size_t width = 0;  // bytes
  std::size_t height = 0;
  std::size_t depth = 0;

  std::size_t bytes() const { return width * height * depth; }
  bool overlaps_host() const { return !destination.on_device || !source.on_device; }
};

// Checks `shape` and finds what memory it touches. CUDA_ERROR_INVALID_VALUE as CUDA: null or unknown addresses,
// pitches that are too small, ends beyond the memory. A copy of nothing is fine. The device with the ordinal `copier`
// makes it: memory of cuMemMap has to be open to that device on both sides (H200, driver 580.159.04: cuMemcpy,
// cuMemcpyDtoD and both Async refuse such a copy between two GPUs, cuMemcpyPeer makes it).
inline constexpr int kEachItsOwn = -1;
cuda::CUresult ResolveCopy(const cuda::CUDA_MEMCPY3D& shape, Copy* copy, int copier = kEachItsOwn);

// `bytes` from one address to another, each of the type given.
cuda::CUDA_MEMCPY3D LinearCopy(cuda::CUmemorytype destination_type, std::uint64_t destination,
                               cuda::CUmemorytype source_type, std::uint64_t source, std::size_t bytes);
cuda::CUDA_MEMCPY3D To3D(const cuda::CUDA_MEMCPY2D& shape);

// Makes `copy` independent of its pageable source: reads it now, into the bytes returned.
std::shared_ptr<const std::vector<std::byte>> Stage(Copy* copy);

struct Memset {
  cuda::CUdeviceptr address = 0;
  std::size_t pitch = 0;  // bytes from row to row
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;  // 1, 2 or 4
  std::size_t width = 0;            // elements
  std::size_t height = 1;
};

// CUDA_ERROR_INVALID_VALUE as for copies, and for misaligned addresses and pitches.
cuda::CUresult CheckMemset(const Memset& memset);

// Carry out what was checked, on the calling thread, in `steps`, and end early if those are aborted. What crosses the
// PCIe link takes as long as the link needs. CUDA_ERROR_ILLEGAL_ADDRESS if device memory has gone meanwhile.
cuda::CUresult Execute(const Copy& copy, MemorySteps& steps);
cuda::CUresult Execute(const Memset& memset, MemorySteps& steps);

}  // namespace tessera::soft
