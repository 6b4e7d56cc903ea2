// Charges for allocations of each kind, where nothing is swapped.
#include <gtest/gtest.h>
#include <unistd.h>

#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuMemAllocPitch_v2(CUdeviceptr*, size_t*, size_t, size_t, unsigned);
TESSERA_HOOK cuMemAllocManaged(CUdeviceptr*, size_t, unsigned);
TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuArrayCreate_v2(CUarray*, const CUDA_ARRAY_DESCRIPTOR*);
TESSERA_HOOK cuArray3DCreate_v2(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*);
TESSERA_HOOK cuArrayDestroy(CUarray);
TESSERA_HOOK cuMipmappedArrayCreate(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned);
TESSERA_HOOK cuMipmappedArrayDestroy(CUmipmappedArray);
TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
TESSERA_HOOK cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                          unsigned long long);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemGetInfo_v2(size_t*, size_t*);
TESSERA_HOOK cuDeviceTotalMem_v2(size_t*, CUdevice);

namespace tessera::shim {
namespace {

class MemoryHooksTest : public ShimFixture {
 protected:
  MemoryHooksTest() {
    Daemon().Set([](FakeDaemon::Answers& answers) {
      answers.page = [](wire::Page& page) {
        page.memory_max = 8 * kGiB;
        page.memory_available = kGiB;
        page.memory_credit = kCredit;
        page.memory_credit_keep = kCredit;
      };
    });
    Attached();
    MakeContext();
  }
  std::uint64_t PinnedBy(wire::PinReason reason) { return Page().pinned_by[static_cast<std::size_t>(reason)]; }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }
  CUmemAllocationProp OnDevice() const {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return prop;
  }
  CUmemGenericAllocationHandle Create(std::uint64_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = OnDevice();
    EXPECT_EQ(cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  CUdeviceptr Reserve(std::uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Cuda().memory.Functions().AddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }

  static constexpr std::int64_t kCredit = std::int64_t{1} << 32;
};

TEST_F(MemoryHooksTest, EachWayToAllocateIsCharged) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 1000), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 1024u);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 600, 3, 4), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 3 * 1024u);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&address, 3 * kMiB, 1), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address, 512, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 512u);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Page().pinned, 0u);
}

TEST_F(MemoryHooksTest, ManagedMemoryBeyondTheVGpuHasItsPlaceInHostMemory) {
  Page().memory_max = 5 * kMiB;
  Page().memory_available = 0;
  Page().memory_credit = 5 * kMiB;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocManaged(&address, 64 * kMiB, 1), CUDA_SUCCESS);
  EXPECT_EQ(Page().memory_credit, static_cast<std::int64_t>(kMiB)) << "two pages of 2 MiB";
  EXPECT_EQ(Cuda().kept_on_host, (std::pair<CUdeviceptr, std::size_t>(address + 4 * kMiB, 60 * kMiB)));
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Page().memory_credit, static_cast<std::int64_t>(5 * kMiB));
}

TEST_F(MemoryHooksTest, AFailedAllocationIsNotCharged) {
  Cuda().FailAllocations(true);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 1000), CUDA_ERROR_UNKNOWN);
  Cuda().FailAllocations(false);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(MemoryHooksTest, ArraysAreChargedByTheirDescriptor) {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = 100;
  flat.Height = 10;
  flat.Format = CU_AD_FORMAT_HALF;
  flat.NumChannels = 4;
  ASSERT_EQ(cuArrayCreate_v2(&array, &flat), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 100 * 10 * 2 * 4 + 192u);  // 8,000 in units of 512
  EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  CUDA_ARRAY3D_DESCRIPTOR deep{};
  deep.Width = 64;
  deep.Depth = 4;
  deep.Format = CU_AD_FORMAT_FLOAT;
  deep.NumChannels = 1;
  ASSERT_EQ(cuArray3DCreate_v2(&array, &deep), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 1024u);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  deep.Flags = CUDA_ARRAY3D_SPARSE;
  ASSERT_EQ(cuArray3DCreate_v2(&array, &deep), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u) << "it owns no memory";
  EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  deep.Flags = 0;
  CUmipmappedArray levels = nullptr;
  ASSERT_EQ(cuMipmappedArrayCreate(&levels, &deep, 3), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 1536u) << "a third more";
  EXPECT_EQ(cuMipmappedArrayDestroy(levels), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(MemoryHooksTest, PhysicalMemoryLivesUntilItsLastHandle) {
  const auto handle = Create(4 * kMiB);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(MemoryHooksTest, EachWayToAllocateHasItsReason) {
  CUdeviceptr own = 0, managed = 0, pooled = 0;
  ASSERT_EQ(cuMemAlloc_v2(&own, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&managed, 4 * kMiB, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&pooled, 2 * kMiB, nullptr), CUDA_SUCCESS);
  const auto handle = Create(6 * kMiB);
  EXPECT_EQ(PinnedBy(wire::PinReason::kUnpaged), kMiB);
  EXPECT_EQ(PinnedBy(wire::PinReason::kManaged), 4 * kMiB);
  EXPECT_EQ(PinnedBy(wire::PinReason::kPool), 2 * kMiB);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 6 * kMiB);
  EXPECT_EQ(Page().pinned, 13 * kMiB);
  cuMemFree_v2(own);
  cuMemFree_v2(managed);
  cuMemFreeAsync(pooled, nullptr);
  cuMemRelease(handle);
  for (const auto& bytes : Page().pinned_by) EXPECT_EQ(bytes, 0u);
}

TEST_F(MemoryHooksTest, PhysicalMemoryThatOthersMayHaveIsExported) {
  const auto handle = Create(4 * kMiB);
  EXPECT_NE(cuMemExportToShareableHandle(nullptr, handle + 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 4 * kMiB);
  int fd = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  close(fd);
  EXPECT_EQ(PinnedBy(wire::PinReason::kVmm), 0u);
  EXPECT_EQ(PinnedBy(wire::PinReason::kExported), 4 * kMiB);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kExported), 0u);
}

TEST_F(MemoryHooksTest, AndUntilItsLastMapping) {
  const auto handle = Create(4 * kMiB);
  const CUdeviceptr address = Reserve(8 * kMiB);
  ASSERT_EQ(cuMemMap(address, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(address + 4 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(cuMemUnmap(address + 4 * kMiB, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(MemoryHooksTest, WhatCannotBeUnmappedStaysCharged) {
  const auto handle = Create(4 * kMiB);
  const CUdeviceptr address = Reserve(4 * kMiB);
  ASSERT_EQ(cuMemMap(address, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_NE(cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(MemoryHooksTest, TheProgramSeesItsVgpu) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 8 * kGiB);
  EXPECT_EQ(free, 5 * kGiB) << "what is available, and the credit";
  ASSERT_EQ(cuDeviceTotalMem_v2(&total, device), CUDA_SUCCESS);
  EXPECT_EQ(total, 8 * kGiB);
  Page().memory_max = 100 * kGiB;
  Page().memory_available = 100 * kGiB;
  ASSERT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 16 * kGiB) << "no more than the device has";
  EXPECT_EQ(free, 15 * kGiB);
}

}  // namespace
}  // namespace tessera::shim
