// Stream-ordered memory: pools, cuMemAllocAsync and its kin.
#include <cstdio>
#include <cstdlib>

#include "soft/api/api.h"
#include "soft/api/stream_variants.h"
#include "soft/device/pool.h"
#include "soft/exec/capture.h"
#include "soft/exec/graph_memory.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

using Pools = Handles<Pool, CUmemoryPool>;

// A real driver takes the handle for an address, so that a program that names no pool crashes (H200, 580.159.04).
template <typename Function>
CUresult WithPool(CUmemoryPool handle, Function&& function) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = Pool::FromHandle(handle);
  if (pool == nullptr) {
    std::fprintf(stderr, "tessera soft GPU: %p is no memory pool; a real driver would crash here\n",
                 static_cast<void*>(handle));
    std::abort();
  }
  return function(*pool);
}

}  // namespace

// ---- pools --------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) { return Give(pool, device.default_pool().handle()); });
}

TESSERA_CUDA_API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) { return Give(pool, device.pool().handle()); });
}

TESSERA_CUDA_API cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return WithDevice(ordinal, [&](Device& device) {
    return WithPool(handle, [&](Pool& pool) {
      if (&pool.device() != &device) return CUDA_ERROR_INVALID_DEVICE;
      device.set_pool(pool);
      return CUDA_SUCCESS;
    });
  });
}

TESSERA_CUDA_API cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  if (handle == nullptr || properties == nullptr || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Pools that other processes can import, and pools of host memory.
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return WithDevice(properties->location.id, [&](Device& device) {
    *handle = Pools::Get().Add(std::make_shared<Pool>(device, properties->maxSize));
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuMemPoolDestroy(CUmemoryPool handle) {
  return WithPool(handle, [&](Pool& pool) {
    if (&pool == &pool.device().default_pool()) return CUDA_ERROR_NOT_PERMITTED;
    if (&pool.device().pool() == &pool) pool.device().set_pool(pool.device().default_pool());
    Pool::Destroy(handle);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  return WithPool(handle, [&](Pool& pool) {
    if (const CUresult captured = CheckUnsafeCall(); captured != CUDA_SUCCESS) return captured;
    pool.Trim(keep);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // As driver 580 does (seen on an H200).
  if (const CUresult captured = CheckUnsafeCall(); captured != CUDA_SUCCESS) return captured;
  return WithPool(handle, [&](Pool& pool) { return pool.Get(attribute, value); });
}

TESSERA_CUDA_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithPool(handle, [&](Pool& pool) { return pool.Set(attribute, value); });
}

// ---- allocations --------------------------------------------------------------------------------------------------

namespace {

CUresult AllocateAsync(Pool& pool, CUdeviceptr* address, std::size_t bytes, CUstream stream_handle) {
  return WithStream(stream_handle, [&](const std::shared_ptr<Stream>& stream) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (IsCaptured(stream)) {
      const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, pool.device().index()}};
      return CaptureAllocation(stream, properties, bytes, address);
    }
    if (const CUresult captured = CheckUnsafeCall(); captured != CUDA_SUCCESS) return captured;
    // Nothing to wait for: what a pool hands out is not in use any more.
    return pool.Allocate(bytes, address);
  });
}

}  // namespace

TESSERA_CUDA_API cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return WithContext([&](Context& context) { return AllocateAsync(context.device().pool(), address, bytes, stream); });
}

TESSERA_CUDA_API cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool handle,
                                         CUstream stream) {
  return WithPool(handle, [&](Pool& pool) { return AllocateAsync(pool, address, bytes, stream); });
}

TESSERA_CUDA_API cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle) {
  return WithStream(stream_handle, [&](const std::shared_ptr<Stream>& stream) {
    if (address == 0) return CUDA_SUCCESS;
    if (IsCaptured(stream)) return CaptureFree(stream, address);
    const bool of_graph = FindGraphMemory(address) != nullptr;
    const auto mapping = AddressMap::Get().Lookup(address);
    const bool begins = mapping && mapping->address == address;
    if (std::shared_ptr<GraphMemory> memory; of_graph) {
      if (const CUresult result = FreeGraphMemory(address, &memory); result != CUDA_SUCCESS) return result;
      return SubmitCall(stream, [memory] { return CUDA_SUCCESS; });
    }
    if (begins && mapping->pool != nullptr) return SubmitCall(stream, [=] { return FreeToPool(address); });
    // Memory of cuMemAlloc, but no mapped memory, as on an H200 (580.159.04).
    if (!begins || mapping->kind != MemoryKind::kDevice || mapping->context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return SubmitCall(stream, [=] { return mapping->context->heap().Free(address); });
  });
}

TESSERA_EXPORT_PTSZ(cuMemAllocAsync)
TESSERA_EXPORT_PTSZ(cuMemAllocFromPoolAsync)
TESSERA_EXPORT_PTSZ(cuMemFreeAsync)

// ---- memory of graphs: taken when a node is made, given back when its last graph goes -----------------------------

}  // namespace tessera::soft
