#include "shim/order/stream_pools.h"

#include <atomic>
#include <memory>
#include <unordered_map>
#include <utility>

#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

constexpr int kMostPoolDevices = 64;  // as Attachment

using PoolsByHandle = std::unordered_map<CUmemoryPool, std::unique_ptr<StreamPool>>;

ForkMutex stream_pools_mutex;
std::atomic<StreamPool*> current[kMostPoolDevices];

PoolsByHandle& Live() TESSERA_REQUIRES(stream_pools_mutex) {
  static auto* pools = new PoolsByHandle;  // outlives the program's own destructors
  return *pools;
}

std::vector<std::unique_ptr<StreamPool>>& Destroyed() TESSERA_REQUIRES(stream_pools_mutex) {
  static auto* pools = new std::vector<std::unique_ptr<StreamPool>>;
  return *pools;
}

}  // namespace

void AddPool(StreamMemory& memory, CUmemoryPool handle, std::uint64_t max_bytes) {
  const MutexLock lock(stream_pools_mutex);
  std::erase_if(Destroyed(), [](const auto& pool) { return pool->Empty(); });
  Live()[handle] = std::make_unique<StreamPool>(memory, handle, max_bytes);
}

// The driver is called with the mutex held: it may give the handle to a new pool at once.
CUresult EndPool(CUmemoryPool handle, CUresult (*destroy)(CUmemoryPool), StreamPool** ended) {
  const MutexLock lock(stream_pools_mutex);
  const CUresult result = destroy(handle);
  if (result != CUDA_SUCCESS) return result;
  auto node = Live().extract(handle);
  if (!node) return result;
  *ended = Destroyed().emplace_back(std::move(node.mapped())).get();
  const std::uint64_t nothing = 0;
  (*ended)->Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing);
  return result;
}

StreamPool* PoolOf(CUmemoryPool handle) {
  const MutexLock lock(stream_pools_mutex);
  const auto at = Live().find(handle);
  return at == Live().end() ? nullptr : at->second.get();
}

StreamPool* CurrentPoolOf(CUdevice device) {
  if (device < 0 || device >= kMostPoolDevices) return nullptr;
  if (StreamPool* known = current[device].load(std::memory_order_acquire)) return known;
  // With the mutex held, so that an answer from before a change is not kept after it.
  const MutexLock lock(stream_pools_mutex);
  CUmemoryPool handle = nullptr;
  if (REAL_AS(cuDeviceGetMemPool, CUmemoryPool*, CUdevice)(&handle, device) != CUDA_SUCCESS) return nullptr;
  const auto at = Live().find(handle);
  if (at == Live().end()) return nullptr;
  current[device].store(at->second.get(), std::memory_order_release);
  return at->second.get();
}

void ForgetCurrentPools() {
  const MutexLock lock(stream_pools_mutex);
  for (auto& each : current) each.store(nullptr, std::memory_order_release);
}

std::vector<StreamPool*> PoolsOf(const StreamMemory& memory) {
  std::vector<StreamPool*> found;
  const MutexLock lock(stream_pools_mutex);
  for (const auto& [handle, pool] : Live())
    if (&pool->Memory() == &memory) found.push_back(pool.get());
  for (const auto& pool : Destroyed())
    if (&pool->Memory() == &memory) found.push_back(pool.get());
  return found;
}

}  // namespace tessera::shim
