#pragma once

#include <cstdint>
#include <memory>

#include "cuda/cuda_abi.h"

namespace tessera::soft {

class Context;
class Device;
class Heap;

// Memory that an allocation node of a graph stands for. Its address is fixed when the node is made, so its bytes are
// taken then and given back when the last graph that names it is gone. (A real driver takes them at the first launch.)
class GraphMemory {
 public:
  // What was allocated from `heap` as `parameters` say.
  GraphMemory(std::shared_ptr<Heap> heap, const Device& device, const cuda::CUDA_MEM_ALLOC_NODE_PARAMS& parameters);
  GraphMemory(const GraphMemory&) = delete;
  ~GraphMemory();

  const cuda::CUDA_MEM_ALLOC_NODE_PARAMS& parameters() const { return parameters_; }

  // Whether a launch has allocated it and nobody freed it since. Reads and writes need submission_mutex, except in the
  // destructor.
  bool allocated() const { return allocated_; }
  void SetAllocated(bool allocated);

 private:
  const std::shared_ptr<Heap> heap_;
  const Device& device_;
  const cuda::CUDA_MEM_ALLOC_NODE_PARAMS parameters_;
  bool allocated_ = false;
};

// CUDA_ERROR_OUT_OF_MEMORY if the device is full. `parameters` gets the address.
cuda::CUresult MakeGraphMemory(Context& context, cuda::CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                               std::shared_ptr<GraphMemory>* memory);
// Null if no allocation node's memory begins at `address`.
std::shared_ptr<GraphMemory> FindGraphMemory(cuda::CUdeviceptr address);
// For cuMemFree and cuMemFreeAsync of memory that a graph allocated: CUDA_ERROR_INVALID_VALUE if that is not so. The
// next launch may allocate it again.
cuda::CUresult FreeGraphMemory(cuda::CUdeviceptr address);

// Bytes of a device.
struct GraphMemoryUse {
  std::uint64_t used = 0;  // allocated by launches
  std::uint64_t used_high = 0;
  std::uint64_t reserved = 0;  // of allocation nodes
  std::uint64_t reserved_high = 0;
};
GraphMemoryUse GraphMemoryOf(const Device& device);
void ResetGraphMemoryHigh(const Device& device, bool used);

}  // namespace tessera::soft
