#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cuda/cuda_abi.h"
#include "soft/exec/stream.h"

namespace tessera::soft {

class Context;
class Device;
class Heap;

// Memory that an allocation node of a graph stands for. Its address is fixed when the node is made, so its bytes are
// taken then and given back when the last graph that names it is gone, and the program does not own it any more. (A
// real driver takes them at the first launch.)
class GraphMemory : public std::enable_shared_from_this<GraphMemory> {
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
  // While it is allocated it outlives its graphs, until its context ends.
  void SetAllocated(bool allocated) TESSERA_REQUIRES(submission_mutex);
  const std::shared_ptr<Heap>& heap() const { return heap_; }
  // A node is to free it. False: one does already, in whatever graph.
  bool TakeFreeNode() { return !has_free_node_.exchange(true); }

 private:
  const std::shared_ptr<Heap> heap_;
  const Device& device_;
  const cuda::CUdeviceptr address_;
  const std::uint64_t bytes_;
  std::atomic<bool> has_free_node_{false};
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
// next launch may allocate it again. `freed`, if not null, keeps it for as long as queued work may use it.
cuda::CUresult FreeGraphMemory(cuda::CUdeviceptr address, std::shared_ptr<GraphMemory>* freed = nullptr);
// What launches left there is gone with the heap.
void DropGraphMemoryOf(const Heap& heap);

}  // namespace tessera::soft
