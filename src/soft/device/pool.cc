#include "soft/device/pool.h"

#include <algorithm>
#include <map>

#include "soft/device/device.h"

namespace tessera::soft {
namespace {

using namespace cuda;

using Pools = Handles<Pool, CUmemoryPool>;

// Pools that were destroyed with memory in use, often by frees that are still queued.
struct Destroyed {
  Mutex mutex;
  std::map<CUmemoryPool, std::shared_ptr<Pool>> pools TESSERA_GUARDED_BY(mutex);

  static Destroyed& Get() {
    static Destroyed& destroyed = *new Destroyed;
    return destroyed;
  }
};

void Raise(std::atomic<std::uint64_t>& high, std::uint64_t value) {
  std::uint64_t seen = high;
  while (seen < value && !high.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

Pool::Pool(Device& device, std::uint64_t max_bytes)
    : device_(device), max_bytes_(max_bytes), heap_(device, nullptr, handle()) {}

CUresult Pool::Allocate(std::uint64_t bytes, CUdeviceptr* address) {
  if (max_bytes_ != 0 && heap_.used() + bytes > max_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = heap_.Allocate(bytes, address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Empty blocks that this pool keeps may be the memory that is missing.
    heap_.Trim(0);
    result = heap_.Allocate(bytes, address);
  }
  Raise(used_high_, heap_.used());
  Raise(reserved_high_, heap_.reserved());
  return result;
}

CUresult Pool::Free(CUdeviceptr address) {
  const CUresult result = heap_.Free(address);
  if (result == CUDA_SUCCESS) heap_.Trim(release_threshold_);
  return result;
}

CUresult Pool::Get(CUmemPool_attribute attribute, void* value) {
  const auto answer = [&](auto number) {
    *static_cast<decltype(number)*>(value) = number;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return answer(reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES].load());
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return answer(release_threshold_.load());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return answer(heap_.reserved());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return answer(reserved_high_.load());
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return answer(heap_.used());
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return answer(used_high_.load());
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Pool::Set(CUmemPool_attribute attribute, const void* value) {
  const auto number = [&] { return *static_cast<const std::uint64_t*>(value); };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *static_cast<const int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = number();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      // High-water marks can only be reset.
      if (number() != 0) return CUDA_ERROR_INVALID_VALUE;
      if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) used_high_ = heap_.used();
      if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) reserved_high_ = heap_.reserved();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

Pool* Pool::FromHandle(CUmemoryPool handle) {
  for (const auto& device : Devices()) {
    if (device->default_pool().handle() == handle) return &device->default_pool();
  }
  return Pools::Get().Find(handle).get();
}

void Pool::Destroy(CUmemoryPool handle) {
  Destroyed& destroyed = Destroyed::Get();
  const MutexLock lock(destroyed.mutex);
  std::shared_ptr<Pool> pool = Pools::Get().Remove(handle);
  if (pool != nullptr && !pool->empty()) destroyed.pools.emplace(handle, std::move(pool));
}

CUresult FreeToPool(CUdeviceptr address) {
  const auto mapping = AddressMap::Get().Lookup(address);
  if (!mapping || mapping->pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Destroyed& destroyed = Destroyed::Get();
  const MutexLock lock(destroyed.mutex);  // no pool goes meanwhile
  if (Pool* pool = Pool::FromHandle(mapping->pool)) return pool->Free(address);
  const auto dying = destroyed.pools.find(mapping->pool);
  if (dying == destroyed.pools.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult freed = dying->second->Free(address);
  if (dying->second->empty()) destroyed.pools.erase(dying);
  return freed;
}

}  // namespace tessera::soft
