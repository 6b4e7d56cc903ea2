// Memory pools as a program sees them, through the hooks: what a pool has, keeps and gives up, and which are the
// driver's.
#include "shim/order/stream_pools.h"

#include "shim/load/hook.h"
#include "shim/testing/stream_memory_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAllocFromPoolAsync(CUdeviceptr*, size_t, CUmemoryPool, CUstream);
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuMemPoolCreate(CUmemoryPool*, const CUmemPoolProps*);
TESSERA_HOOK cuMemPoolDestroy(CUmemoryPool);
TESSERA_HOOK cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void*);
TESSERA_HOOK cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*);
TESSERA_HOOK cuMemPoolTrimTo(CUmemoryPool, size_t);
TESSERA_HOOK cuMemPoolSetAccess(CUmemoryPool, const CUmemAccessDesc*, size_t);
TESSERA_HOOK cuDeviceSetMemPool(CUdevice, CUmemoryPool);
TESSERA_HOOK cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);
TESSERA_HOOK cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr);
TESSERA_HOOK cuCtxSynchronize();

namespace tessera::shim {
namespace {

class StreamPoolsTest : public StreamMemoryFixture {
 protected:
  CUmemPoolProps Properties() const {
    return {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  }
  CUmemoryPool MakePool(const CUmemPoolProps& properties) {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }

  static constexpr std::uint64_t kGrowth = 32 * kMiB;
};

TEST_F(StreamPoolsTest, PoolsThatOthersShareAreTheDrivers) {
  Begin();
  CUmemPoolProps exportable = Properties(), host = Properties();
  exportable.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  for (const CUmemPoolProps& properties : {exportable, host}) {
    const CUmemoryPool pool = MakePool(properties);
    const CUdeviceptr address = AllocateFrom(pool, 20 * kMiB);
    EXPECT_FALSE(InHeap(address));
    Free(address);
    EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  }
}

TEST_F(StreamPoolsTest, APoolSaysWhatItHas) {
  Begin();
  const CUmemoryPool pool = MakePool(Properties());
  const CUdeviceptr address = AllocateFrom(pool, 40 * kMiB), small = AllocateFrom(pool, 1000);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 40 * kMiB + 1024);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * kGrowth);
  Free(address);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024u);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * kGrowth);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), kGrowth);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 40 * kMiB + 1024);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2 * kGrowth);
  std::uint64_t zero = 0;
  EXPECT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1024u);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), kGrowth);
  Free(small);
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  int reuse = 0;
  EXPECT_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse), CUDA_SUCCESS);
  EXPECT_EQ(reuse, 1) << "the driver's answer";
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(StreamPoolsTest, APoolKeepsUpToItsThreshold) {
  Begin();
  const CUmemoryPool pool = MakePool(Properties());
  SetThreshold(pool, 128 * kMiB);
  const CUdeviceptr one = AllocateFrom(pool, 100 * kMiB), other = AllocateFrom(pool, 100 * kMiB);
  Free(one);
  Free(other);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 128 * kMiB);
  EXPECT_EQ(Charged(), 100 * kMiB) << "what it keeps is charged";
  const CUdeviceptr again = Allocate(100 * kMiB);
  EXPECT_NE(again, other) << "another pool's";
  const std::uint64_t calls = Cuda().memory.Calls();
  const CUdeviceptr kept = AllocateFrom(pool, 100 * kMiB);
  EXPECT_EQ(kept, other);
  EXPECT_EQ(Cuda().memory.Calls(), calls);
  Free(kept);
  Free(again);
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(StreamPoolsTest, WhatPoolsKeepIsGivenUpBeforeAnythingIsRefused) {
  Begin();
  SetThreshold(DefaultPool(), UINT64_MAX);
  const CUdeviceptr kept = Allocate(100 * kMiB);
  Free(kept);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  NoRoom();
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 100 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(address, kept);
}

TEST_F(StreamPoolsTest, APoolHasNoMoreThanItsMaximum) {
  Begin();
  CUmemPoolProps properties = Properties();
  properties.maxSize = 64 * kMiB;
  const CUmemoryPool pool = MakePool(properties);
  const CUdeviceptr address = AllocateFrom(pool, 40 * kMiB);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&more, 40 * kMiB, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 40 * kMiB);
  Free(address);
  EXPECT_EQ(AllocateFrom(pool, 40 * kMiB), address);
  Free(address);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(StreamPoolsTest, APoolIsDestroyedWithBlocksThatLive) {
  Begin();
  const CUmemoryPool pool = MakePool(Properties());
  SetThreshold(pool, UINT64_MAX);
  const CUdeviceptr live = AllocateFrom(pool, 100 * kMiB), kept = AllocateFrom(pool, 20 * kMiB);
  Free(kept);
  EXPECT_EQ(cuDeviceSetMemPool(device, pool), CUDA_SUCCESS);
  EXPECT_EQ(Allocate(20 * kMiB), kept);
  Free(kept);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 100 * kMiB);
  EXPECT_TRUE(Cuda().memory.Valid(live, {device}));
  CUmemoryPool owner = nullptr;
  const CUdeviceptr next = Allocate(kMiB);  // from the device's default pool again
  EXPECT_EQ(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, next), CUDA_SUCCESS);
  EXPECT_EQ(owner, DefaultPool());
  Free(live);
  Free(next);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u) << "a pool that is gone keeps nothing";
}

TEST_F(StreamPoolsTest, PointersSayWhosePoolTheyAre) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(kMiB);
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address + 5), CUDA_SUCCESS);
  EXPECT_EQ(pool, DefaultPool());
  CUcontext owner = context;
  EXPECT_EQ(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address), CUDA_SUCCESS);
  EXPECT_EQ(owner, nullptr) << "it is the device's";
  bool capable = true;
  EXPECT_EQ(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address), CUDA_SUCCESS);
  EXPECT_FALSE(capable);
  CUipcMemHandle handle;
  EXPECT_EQ(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamPoolsTest, DevicesThatMayReachAPoolReachItsBlocks) {
  Begin();
  const CUdeviceptr address = Allocate(100 * kMiB);
  const CUdevice peer = device + 1;
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, peer}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_FALSE(Cuda().memory.Valid(address, {device, peer}));
  EXPECT_EQ(cuMemPoolSetAccess(DefaultPool(), &access, 1), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device, peer}));
  EXPECT_TRUE(Cuda().memory.Valid(Allocate(200 * kMiB), {device, peer}));
}

}  // namespace
}  // namespace tessera::shim
