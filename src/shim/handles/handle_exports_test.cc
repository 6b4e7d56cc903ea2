// Memory by handle that others get (exports, NICs, multicast objects): it becomes one piece before, and stays where it
// is.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "shim/device/current.h"
#include "shim/load/hook.h"
#include "shim/testing/gpu_with_block.h"
#include "shim/testing/handle_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAddressFree(CUdeviceptr, size_t);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                          unsigned long long);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
TESSERA_HOOK cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, int, unsigned long long);
TESSERA_HOOK cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long);
TESSERA_HOOK cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr);
TESSERA_HOOK cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void**, void**);

namespace tessera::shim {
namespace {

class HandleExportsTest : public HandleFixture {
 protected:
  static CUresult Export(CUmemGenericAllocationHandle handle) {
    int fd = -1;
    const CUresult result = cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) close(fd);
    return result;
  }
  static CUresult ExportOfPiecesThatSomethingHas(CUmemGenericAllocationHandle handle) {
    testing::internal::CaptureStderr();
    const CUresult result = Export(handle);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("a device has"), std::string::npos);
    return result;
  }
  static CUresult DmaBuf(void*, CUdeviceptr, std::size_t, int, unsigned long long) { return CUDA_SUCCESS; }
};

TEST_F(HandleExportsTest, ExportedMemoryIsPinnedForThatReason) {
  const auto handle = Create(4 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr address = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(address, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Open(address, 4 * kMiB), CUDA_SUCCESS);
  Cuda().memory.Write(address, 77);
  int fd = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_SUCCESS);
  close(fd);
  EXPECT_EQ(PinnedBy(wire::PinReason::kExported), 4 * kMiB);
  EXPECT_EQ(Vmm(), 0u);
  EXPECT_EQ(Cuda().memory.Read(address), 77u);
  EXPECT_EQ(RoomTaken(), 4 * kMiB);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(PinnedBy(wire::PinReason::kExported), 0u);
  EXPECT_EQ(RoomTaken(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(HandleExportsTest, WhatANicHasIsNotReplaced) {
  Cuda().Put(k_cuMemGetHandleForAddressRange, &DmaBuf);
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  int fd = -1;
  ASSERT_EQ(cuMemGetHandleForAddressRange(&fd, address, kPieces, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(ExportOfPiecesThatSomethingHas(handle), CUDA_ERROR_NOT_SUPPORTED);
  ExpectWords(address);
}

TEST_F(HandleExportsTest, WhatANicHasOfFixedMemoryIsNotReplaced) {
  Cuda().Put(k_cuMemGetHandleForAddressRange, &DmaBuf);
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle), again = address + 128 * kMiB;
  ASSERT_EQ(cuMemMap(again, kPieces, 0, handle, 0), CUDA_SUCCESS);
  int fd = -1;
  ASSERT_EQ(cuMemGetHandleForAddressRange(&fd, address, kPieces, 1, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(again, kPieces), CUDA_SUCCESS);
  EXPECT_EQ(ExportOfPiecesThatSomethingHas(handle), CUDA_ERROR_NOT_SUPPORTED);
  ExpectWords(address);
}

TEST_F(HandleExportsTest, WhatIsAboutToBeRegisteredIsNotReplaced) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const unsigned on = 1;
  ASSERT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(ExportOfPiecesThatSomethingHas(handle), CUDA_ERROR_NOT_SUPPORTED);
  ExpectWords(address);
}

std::uint64_t mappings_when_bound;

TEST_F(HandleExportsTest, WhatIsBoundByItsAddressIsOnePieceBefore) {
  Cuda().Put(
      k_cuMulticastBindAddr,
      +[](CUmemGenericAllocationHandle, std::size_t, CUdeviceptr, std::size_t, unsigned long long) {
        return mappings_when_bound = Cuda().memory.Mappings(), CUDA_SUCCESS;
      });
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const std::uint64_t before = Cuda().memory.Mappings();
  ASSERT_EQ(cuMulticastBindAddr(1, 0, address, kPieces, 0), CUDA_SUCCESS);
  EXPECT_EQ(mappings_when_bound, before - 1);
  EXPECT_EQ(Export(handle), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().memory.Mappings(), before - 1);
  ExpectWords(address);
}

TEST_F(HandleExportsTest, AnExportNeedsNoContext) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  std::thread([&] { EXPECT_EQ(Export(handle), CUDA_SUCCESS); }).join();
  EXPECT_EQ(copied_on, device);
  ExpectWords(address);
}

TEST_F(HandleExportsTest, AnExportCopiesOnTheMemorysOwnGpu) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const CUcontext other = Cuda().MakeContext(63);
  FakeCuda::SetCurrent(other);
  EXPECT_EQ(Export(handle), CUDA_SUCCESS);
  EXPECT_EQ(CurrentContext(), other);
  EXPECT_EQ(copied_on, device);
  ExpectWords(address);
}

TEST_F(HandleExportsTest, AnExportWaitsForTheWorkOfEachGpuThatReachesTheMemory) {
  GpuWithBlock peer;
  const CUdevice peer_device = CurrentAttachment()->Device();
  ASSERT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  FakeCuda::SetCurrent(context_);
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, peer_device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuMemSetAccess(address, kPieces, &access, 1), CUDA_SUCCESS);
  reach = {device, peer_device};
  Cuda().EndWhenAsked(peer.context);
  bool moved_under_it = false;
  Cuda().memory.OnUnmap([&] { moved_under_it |= Cuda().Works(peer.context); });
  EXPECT_EQ(Export(handle), CUDA_SUCCESS);
  Cuda().memory.OnUnmap({});
  EXPECT_FALSE(moved_under_it);
  EXPECT_FALSE(Cuda().Works(peer.context)) << "it was waited for";
  ExpectWords(address);
}

}  // namespace
}  // namespace tessera::shim
