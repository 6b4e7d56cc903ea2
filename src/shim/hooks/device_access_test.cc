// Memory that a program gives to a NIC or a disk (dma-buf), or to a multicast object: it stays on the GPU, and the page
// says why.
#include <gtest/gtest.h>

#include "shim/testing/gpu_with_block.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
TESSERA_HOOK cuMemAddressFree(CUdeviceptr, size_t);
TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, int, unsigned long long);
TESSERA_HOOK cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,
                                unsigned long long);
TESSERA_HOOK cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long);

namespace tessera::shim {
namespace {

// What the driver was asked last, and what it answers.
CUdeviceptr asked_address = 0;
CUmemGenericAllocationHandle asked_handle = 0;
CUresult answer = CUDA_SUCCESS;

CUresult DmaBuf(void* handle, CUdeviceptr address, std::size_t, int, unsigned long long) {
  asked_address = address;
  if (answer == CUDA_SUCCESS) *static_cast<int*>(handle) = 77;
  return answer;
}
CUresult BindMem(CUmemGenericAllocationHandle, std::size_t, CUmemGenericAllocationHandle handle, std::size_t,
                 std::size_t, unsigned long long) {
  return asked_handle = handle, answer;
}
CUresult BindAddr(CUmemGenericAllocationHandle, std::size_t, CUdeviceptr address, std::size_t, unsigned long long) {
  return asked_address = address, answer;
}

class DeviceAccessTest : public GpuWithBlock {
 protected:
  DeviceAccessTest() {
    Page().memory_credit = Page().memory_credit_keep = std::int64_t{1} << 34;
    Cuda().Put(k_cuMemGetHandleForAddressRange, &DmaBuf);
    Cuda().Put(k_cuMulticastBindMem, &BindMem);
    Cuda().Put(k_cuMulticastBindAddr, &BindAddr);
    asked_address = asked_handle = 0;
    answer = CUDA_SUCCESS;
  }

  std::uint64_t PinnedBy(wire::PinReason reason) { return Page().pinned_by[static_cast<std::size_t>(reason)]; }
  std::uint64_t Registered() { return Attached().Pager()->Heap().Figures().registered; }
  CUmemGenericAllocationHandle Create(std::uint64_t bytes, int compression = 0) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    prop.allocFlags.compressionType = static_cast<unsigned char>(compression);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUdeviceptr Reserve(std::uint64_t bytes) {
    CUdeviceptr begin = 0;
    EXPECT_EQ(cuMemAddressReserve(&begin, bytes, 0, 0, 0), CUDA_SUCCESS);
    return begin;
  }
  static CUresult AskDmaBuf(CUdeviceptr at, std::uint64_t bytes) {
    constexpr int kDmaBuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    int fd = -1;
    const CUresult result = cuMemGetHandleForAddressRange(&fd, at, bytes, kDmaBuf, 0);
    EXPECT_EQ(fd, result == CUDA_SUCCESS ? 77 : -1);
    return result;
  }
  static constexpr CUmemGenericAllocationHandle kObject = 0x4d43;
};

TEST_F(DeviceAccessTest, ABlockThatANicHasIsRegisteredForAsLongAsItLives) {
  const std::uint64_t before = Registered();
  ASSERT_EQ(AskDmaBuf(address + 4096, 8192), CUDA_SUCCESS);
  EXPECT_EQ(asked_address, address + 4096);
  EXPECT_EQ(Registered(), before + 64 * kMiB) << "all of its chunk";
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Registered(), before);
}

TEST_F(DeviceAccessTest, WhatIsNoBlockIsNotGivenAway) {
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(AskDmaBuf(address, 8192), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(asked_address, 0u) << "the driver was asked for memory that the heap may move";
  EXPECT_EQ(AskDmaBuf(0x1234, 8192), CUDA_SUCCESS) << "memory of the driver's";
  EXPECT_EQ(Registered(), 0u);
}

TEST_F(DeviceAccessTest, MappedMemoryThatANicHasIsRegistered) {
  const auto handle = Create(4 * kMiB);
  const CUdeviceptr at = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(at, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(AskDmaBuf(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Registered(), 4 * kMiB);
  EXPECT_EQ(cuMemUnmap(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Registered(), 0u);
  EXPECT_EQ(cuMemAddressFree(at, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(DeviceAccessTest, MappedMemoryThatCannotMoveIsTheDriversToGive) {
  const auto handle = Create(4 * kMiB, 1);
  const CUdeviceptr at = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(at, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(AskDmaBuf(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(asked_address, at);
  EXPECT_EQ(Registered(), 0u);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 4 * kMiB);
  EXPECT_EQ(cuMemUnmap(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(at, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(DeviceAccessTest, AHandleThatIsBoundIsPinnedForMulticast) {
  const auto handle = Create(4 * kMiB);
  const CUdeviceptr at = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(at, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  Cuda().memory.Write(at, 5);
  ASSERT_EQ(cuMulticastBindMem(kObject, 0, handle, 0, 4 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_NE(asked_handle, 0u);
  EXPECT_NE(asked_handle, handle) << "the driver knows its own handle only";
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 4 * kMiB);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 0u);
  EXPECT_EQ(Cuda().memory.Read(at), 5u);
  EXPECT_EQ(cuMemUnmap(at, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 4 * kMiB) << "its handle lives";
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 0u);
  EXPECT_EQ(cuMemAddressFree(at, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(DeviceAccessTest, ItIsPinnedThoughItWasNeverMapped) {
  const auto handle = Create(2 * kMiB);
  ASSERT_EQ(cuMulticastBindMem(kObject, 0, handle, 0, 2 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 2 * kMiB);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 0u);
}

// Natively an address has one handle behind it, however long the memory.
TEST_F(DeviceAccessTest, AnAddressThatIsBoundHasOneHandleBehindIt) {
  const auto handle = Create(4 * kMiB);
  const CUdeviceptr at = Reserve(128 * kMiB), across = at + 62 * kMiB;
  ASSERT_EQ(cuMemMap(across, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  Cuda().EndAtOnce(context);
  const std::uint64_t handles = Cuda().memory.Handles();
  Cuda().Put(k_cuMemcpyDtoD_v2, +[](CUdeviceptr, CUdeviceptr, std::size_t) { return CUDA_SUCCESS; });
  ASSERT_EQ(cuMulticastBindAddr(kObject, 0, across + 2 * kMiB, 2 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(asked_address, across + 2 * kMiB);
  EXPECT_EQ(Cuda().memory.Handles(), handles - 1);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 4 * kMiB);
  EXPECT_EQ(cuMemUnmap(across, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 0u);
  EXPECT_EQ(cuMemAddressFree(at, 128 * kMiB), CUDA_SUCCESS);
}

TEST_F(DeviceAccessTest, HandlesOfTheDriversOwnChangeTheirReason) {
  const auto first = Create(4 * kMiB, 1), second = Create(2 * kMiB, 1);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 6 * kMiB);
  answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(cuMulticastBindMem(kObject, 0, first, 0, 4 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 0u);
  answer = CUDA_SUCCESS;
  ASSERT_EQ(cuMulticastBindMem(kObject, 0, first, 0, 4 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(asked_handle, first);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 4 * kMiB);
  const CUdeviceptr at = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(at, 2 * kMiB, 0, second, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMulticastBindAddr(kObject, 0, at + kMiB, kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 6 * kMiB);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 0u);
  EXPECT_EQ(cuMemUnmap(at, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kMulticast), 0u);
  EXPECT_EQ(cuMemAddressFree(at, 64 * kMiB), CUDA_SUCCESS);
}

// The driver binds memory of cudaMallocAsync: a block of the heap, which would move away from under the object.
TEST_F(DeviceAccessTest, ABlockThatIsBoundByItsAddressStaysWhereItIs) {
  const std::uint64_t before = Registered();
  CUdeviceptr pooled = 0;
  ASSERT_EQ(cuMemAllocAsync(&pooled, 64 * kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMulticastBindAddr(kObject, 0, pooled, 2 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(asked_address, pooled);
  EXPECT_EQ(Registered(), before + 64 * kMiB);
  EXPECT_EQ(cuMemFreeAsync(pooled, nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
