#pragma once

#include <cstdint>
#include <memory>

#include "cuda/cuda_abi.h"
#include "soft/exec/stream.h"

namespace tessera::soft {

class Context;
class Device;
class Heap;

// Memory that an allocation node of a graph stands for. Its address is fixed when the node is made, so its bytes are
// taken then and given back when the last graph that names it is gone. (A real driver takes them at the first launch.)
class GraphMemory {
 public:
  // `address`, of so many bytes, was allocated from `heap` on `device`.
  GraphMemory(std::shared_ptr<Heap> heap, const Device& device, cuda::CUdeviceptr address, std::uint64_t bytes);
  GraphMemory(const GraphMemory&) = delete;
  ~GraphMemory();

  const Device& device() const { return device_; }
  cuda::CUdeviceptr address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }
  // Whether a launch has allocated it and nobody freed it since.
  bool allocated() const TESSERA_REQUIRES(submission_mutex) { return allocated_; }
  void SetAllocated(bool allocated) TESSERA_REQUIRES(submission_mutex) { allocated_ = allocated; }

 private:
  const std::shared_ptr<Heap> heap_;
  const Device& device_;
  const cuda::CUdeviceptr address_;
  const std::uint64_t bytes_;
  bool allocated_ TESSERA_GUARDED_BY(submission_mutex) = false;
};

// CUDA_ERROR_OUT_OF_MEMORY if the device is full. `parameters` gets the address.
cuda::CUresult MakeGraphMemory(Context& context, cuda::CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                               std::shared_ptr<GraphMemory>* memory);
// Null if no allocation node's memory begins at `address`.
std::shared_ptr<GraphMemory> FindGraphMemory(cuda::CUdeviceptr address);
// Bytes on the device that graphs' memory takes.
std::uint64_t GraphMemoryOn(const Device& device);
// For cuMemFree and cuMemFreeAsync of memory that a graph allocated: CUDA_ERROR_INVALID_VALUE if that is not so. The
// next launch may allocate it again.
cuda::CUresult FreeGraphMemory(cuda::CUdeviceptr address);

}  // namespace tessera::soft
