// Answers to the program about memory of the pager's heap, about another program's memory, and its IPC handles.
#include <gtest/gtest.h>
#include <string.h>

#include "shim/memory/exports.h"
#include "shim/memory/imports.h"
#include "shim/testing/gpu_with_block.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);
TESSERA_HOOK cuPointerGetAttributes(unsigned, CUpointer_attribute*, void**, CUdeviceptr);
TESSERA_HOOK cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr);
TESSERA_HOOK cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
TESSERA_HOOK cuMemGetAddressRange_v2(CUdeviceptr*, size_t*, CUdeviceptr);
TESSERA_HOOK cuCtxEnablePeerAccess(CUcontext, unsigned);
TESSERA_HOOK cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr);
TESSERA_HOOK cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle, unsigned);
TESSERA_HOOK cuIpcCloseMemHandle(CUdeviceptr);
TESSERA_HOOK cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*);
TESSERA_HOOK cuGetProcAddress(const char*, void**, int, std::uint64_t);

namespace tessera::shim {
namespace {

class PointersTest : public GpuWithBlock {
 protected:
  PointersTest() : GpuWithBlock(kBytes) {}
  template <typename Value>
  Value Ask(CUpointer_attribute attribute, CUdeviceptr at) {
    Value value{};
    EXPECT_EQ(cuPointerGetAttribute(&value, attribute, at), CUDA_SUCCESS) << attribute;
    return value;
  }

  static constexpr std::uint64_t kBytes = 100 * kMiB;
};

TEST_F(PointersTest, ABlockLooksAsTheDriversOwnWould) {
  const CUdeviceptr inside = address + 4096;
  EXPECT_EQ(Ask<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside), context);
  EXPECT_EQ(Ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(Ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
  EXPECT_EQ(Ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), device);
  EXPECT_EQ(Ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), address);
  EXPECT_EQ(Ask<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), kBytes);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), 0);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside), 1);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1);
  EXPECT_NE(Ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside), 0u);
}

TEST_F(PointersTest, ABlocksIdIsNeverGivenTwice) {
  const auto id = Ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  CUdeviceptr next = 0;
  ASSERT_EQ(cuMemAlloc_v2(&next, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(next, address);
  EXPECT_NE(Ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, next), id);
}

TEST_F(PointersTest, AnAddressOfNoBlockIsInvalid) {
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetAddressRange_v2(nullptr, nullptr, address), CUDA_ERROR_NOT_FOUND);
}

TEST_F(PointersTest, OtherAddressesAreTheDriversBusiness) {
  int value = 0;
  EXPECT_EQ(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0x1234),
            CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
}

TEST_F(PointersTest, ItsRangeIsTheBlock) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(cuMemGetAddressRange_v2(&base, &bytes, address + kBytes - 1), CUDA_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_EQ(bytes, kBytes);
}

CUresult Nothing(unsigned, CUpointer_attribute*, void**, CUdeviceptr) { return CUDA_SUCCESS; }

TEST_F(PointersTest, WhatTheDriverSaysOfSeveralAttributesIsSetRight) {
  Cuda().Put(k_cuPointerGetAttributes, &Nothing);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::size_t bytes = 0;
  int ordinal = -1;
  void* data[] = {&bytes, nullptr, &ordinal};
  ASSERT_EQ(cuPointerGetAttributes(3, attributes, data, address), CUDA_SUCCESS);
  EXPECT_EQ(bytes, kBytes);
  EXPECT_EQ(ordinal, device);
}

CUresult Allowed(CUcontext, unsigned) { return CUDA_SUCCESS; }

TEST_F(PointersTest, APeerReachesTheHeapToo) {
  Cuda().Put(k_cuCtxEnablePeerAccess, &Allowed);
  const CUcontext other = Cuda().MakeContext(63);
  FakeCuda::SetCurrent(other);
  EXPECT_FALSE(Cuda().memory.Valid(address, {device, 63}));
  EXPECT_EQ(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device, 63}));
}

int waits = 0;
CUresult Waited(CUstream) { return ++waits, CUDA_SUCCESS; }

TEST_F(PointersTest, SyncMemopsMakesCopiesSynchronousAndTheBlockPinned) {
  Cuda().Put(k_cuStreamSynchronize, &Waited);
  const unsigned on = 1, off = 0;
  EXPECT_EQ(cuMemcpyHtoD_v2(address, &on, sizeof on), CUDA_SUCCESS);
  EXPECT_EQ(waits, 0);
  ASSERT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address + 8), CUDA_SUCCESS);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), 1);
  EXPECT_GE(Attached().Pager()->Heap().Figures().pinned, kBytes);
  EXPECT_EQ(cuMemcpyHtoD_v2(address, &on, sizeof on), CUDA_SUCCESS);
  EXPECT_EQ(waits, 1);
  ASSERT_EQ(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_SUCCESS);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), 0);
  EXPECT_EQ(cuMemcpyHtoD_v2(address, &on, sizeof on), CUDA_SUCCESS);
  EXPECT_EQ(waits, 1);
  ASSERT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAlloc_v2(&address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), 0) << "another block";
}

TEST_F(PointersTest, ItHasNoHandleOfItsOwn) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PointersTest, AnIpcHandleIsForOtherPrograms) {
  CUipcMemHandle handle{};
  ASSERT_EQ(cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  EXPECT_EQ(strcmp(handle.reserved, "tessera memory\n"), 0);
  CUdeviceptr opened = 0;
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT) << "as the driver says";
  EXPECT_EQ(cuIpcOpenMemHandle_v2(nullptr, handle, 1), CUDA_ERROR_INVALID_VALUE);
  const CUipcMemHandle drivers{};
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&opened, drivers, 1), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED) << "the driver's answer";
  EXPECT_EQ(cuIpcCloseMemHandle(0x1234), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
}

TEST_F(PointersTest, ImportedMemoryIsTheOthersBlock) {
  wire::ExportKey key;
  ASSERT_EQ(ExportMemory(*Attached().Pager(), address, &key), CUDA_SUCCESS);
  CUdeviceptr imported = 0;
  ASSERT_EQ(ImportMemory({gpu, device}, key, &imported), CUDA_SUCCESS);
  EXPECT_EQ(Ask<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, imported + 8), kBytes);
  EXPECT_EQ(Ask<unsigned char>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, imported), 0) << "not to be passed on";
  EXPECT_NE(Ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, imported),
            Ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
  EXPECT_EQ(cuIpcCloseMemHandle(imported), CUDA_SUCCESS);
}

void* answer = nullptr;
CUresult Answer(const char*, void** function, int, std::uint64_t) { return *function = answer, CUDA_SUCCESS; }

TEST_F(PointersTest, ALookUpFindsTheShimsFunctionInPlaceOfTheDrivers) {
  Cuda().Put(k_cuGetProcAddress, &Answer);
  void* function = nullptr;
  answer = tessera_real_table[k_cuMemFree_v2];
  // The fake's function for that also serves for arrays: one of those that the shim hooks.
  ASSERT_EQ(cuGetProcAddress("cuMemFree", &function, 12000, 0), CUDA_SUCCESS);
  EXPECT_NE(function, answer);
  answer = &answer;  // not one that the shim knows
  ASSERT_EQ(cuGetProcAddress("cuNew", &function, 12000, 0), CUDA_SUCCESS);
  EXPECT_EQ(function, answer);
}

}  // namespace
}  // namespace tessera::shim
