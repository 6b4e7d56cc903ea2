#include <vector>

#include "base/size.h"
#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

using ApiMemory = SoftApiTest;

TEST_F(ApiMemory, AllocateUntilFullExactly) {
  const std::size_t free = FreeBytes();
  std::vector<CUdeviceptr> taken;
  CUdeviceptr memory = 0;
  while (cuMemAlloc_v2(&memory, 16 * kMiB) == CUDA_SUCCESS) taken.push_back(memory);
  EXPECT_EQ(taken.size(), free / (16 * kMiB));
  EXPECT_EQ(FreeBytes(), free % (16 * kMiB));
  EXPECT_EQ(cuMemAlloc_v2(&memory, FreeBytes() + 1), CUDA_ERROR_OUT_OF_MEMORY);
  // The program can go on.
  ASSERT_OK(cuMemAlloc_v2(&memory, FreeBytes()));
  EXPECT_EQ(FreeBytes(), 0u);
  EXPECT_OK(cuMemFree_v2(memory));
  for (const CUdeviceptr each : taken) EXPECT_OK(cuMemFree_v2(each));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiMemory, SmallAllocationsShareAGranule) {
  const std::size_t free = FreeBytes();
  std::vector<CUdeviceptr> small(1000);
  for (CUdeviceptr& memory : small) {
    ASSERT_OK(cuMemAlloc_v2(&memory, 1000));
    EXPECT_EQ(memory % 256, 0u);
  }
  EXPECT_EQ(FreeBytes(), free - 2 * kMiB);
  for (std::size_t i = 0; i < small.size(); i += 2) EXPECT_OK(cuMemFree_v2(small[i]));
  CUdeviceptr again = 0;
  ASSERT_OK(cuMemAlloc_v2(&again, 1000));
  EXPECT_EQ(again, small[0]);
  EXPECT_OK(cuMemFree_v2(again));
  for (std::size_t i = 1; i < small.size(); i += 2) EXPECT_OK(cuMemFree_v2(small[i]));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiMemory, WrongArguments) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemFree_v2(0));
  EXPECT_EQ(cuMemFree_v2(0x1234), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemAlloc_v2(&memory, 4096));
  EXPECT_EQ(cuMemFree_v2(memory + 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFree_v2(memory));
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ApiMemory, PitchedRows) {
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  ASSERT_OK(cuMemAllocPitch_v2(&memory, &pitch, 1000, 10, 4));
  EXPECT_EQ(pitch, 1024u);
  std::size_t bytes = 0;
  CUdeviceptr base = 0;
  EXPECT_OK(cuMemGetAddressRange_v2(&base, &bytes, memory + 5000));
  EXPECT_EQ(base, memory);
  EXPECT_EQ(bytes, 10240u);
  EXPECT_OK(cuMemFree_v2(memory));
  EXPECT_EQ(cuMemAllocPitch_v2(&memory, &pitch, SIZE_MAX / 2, 4, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocPitch_v2(&memory, &pitch, 100, 4, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ApiMemory, CopyThereAndBack) {
  std::vector<int> data(100'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int>(i * 7);
  CUdeviceptr memory = 0;
  ASSERT_OK(cuMemAlloc_v2(&memory, data.size() * sizeof(int)));
  EXPECT_OK(cuMemcpyHtoD_v2(memory, data.data(), data.size() * sizeof(int)));
  std::vector<int> back(data.size());
  EXPECT_OK(cuMemcpyDtoH_v2(back.data(), memory, data.size() * sizeof(int)));
  EXPECT_EQ(back, data);
  EXPECT_OK(cuMemFree_v2(memory));
}

TEST_F(ApiMemory, HostMemory) {
  const std::size_t free = FreeBytes();
  void* host = nullptr;
  ASSERT_OK(cuMemHostAlloc(&host, 1000, CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_EQ(FreeBytes(), free);
  CUdeviceptr device = 0;
  EXPECT_OK(cuMemHostGetDevicePointer_v2(&device, host, 0));
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  unsigned flags = 0;
  EXPECT_OK(cuMemHostGetFlags(&flags, host));
  EXPECT_EQ(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  EXPECT_EQ(cuMemFree_v2(device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFreeHost(host));
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ApiMemory, RegisteredMemory) {
  std::vector<char> mine(10'000);
  EXPECT_OK(cuMemHostRegister_v2(mine.data(), mine.size(), 0));
  EXPECT_EQ(cuMemHostRegister_v2(mine.data() + 5000, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  unsigned type = 0;
  EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&mine[77])));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_OK(cuMemHostUnregister(mine.data()));
  EXPECT_EQ(cuMemHostUnregister(mine.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  mine[9999] = 'x';  // still the program's
}

TEST_F(ApiMemory, PointerAttributes) {
  CUdeviceptr memory = 0;
  CUdeviceptr managed = 0;
  ASSERT_OK(cuMemAlloc_v2(&memory, 5000));
  ASSERT_OK(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL));
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_CONTEXT,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned type = 0;
  unsigned is_managed = 7;
  int ordinal = -1;
  CUcontext context = nullptr;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  void* values[] = {&type, &is_managed, &ordinal, &context, &start, &size};
  EXPECT_OK(cuPointerGetAttributes(6, names, values, memory + 100));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(is_managed, 0u);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(start, memory);
  EXPECT_EQ(size, 5000u);
  EXPECT_OK(cuPointerGetAttributes(6, names, values, managed));
  EXPECT_EQ(is_managed, 1u);
  // Memory that the driver does not know.
  EXPECT_OK(cuPointerGetAttributes(6, names, values, reinterpret_cast<CUdeviceptr>(&type)));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, CU_DEVICE_INVALID);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFree_v2(memory));
  EXPECT_OK(cuMemFree_v2(managed));
}

TEST_F(ApiMemory, ArraysTakeDeviceMemory) {
  const std::size_t free = FreeBytes();
  const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
  CUarray array = nullptr;
  ASSERT_OK(cuArray3DCreate_v2(&array, &shape));
  EXPECT_EQ(FreeBytes(), free - 16 * kMiB);
  CUDA_ARRAY3D_DESCRIPTOR told = {};
  EXPECT_OK(cuArray3DGetDescriptor_v2(&told, array));
  EXPECT_EQ(told.Width, 1024u);
  EXPECT_EQ(told.Depth, 0u);
  EXPECT_OK(cuArrayDestroy(array));
  EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(FreeBytes(), free);
  CUDA_ARRAY3D_DESCRIPTOR wrong = shape;
  wrong.NumChannels = 3;
  EXPECT_EQ(cuArray3DCreate_v2(&array, &wrong), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ApiMemory, MipmappedLevelsHalve) {
  const std::size_t free = FreeBytes();
  const CUDA_ARRAY3D_DESCRIPTOR shape = {
      .Width = 64, .Height = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CUmipmappedArray mipmapped = nullptr;
  ASSERT_OK(cuMipmappedArrayCreate(&mipmapped, &shape, 3));
  CUarray level = nullptr;
  ASSERT_OK(cuMipmappedArrayGetLevel(&level, mipmapped, 2));
  CUDA_ARRAY3D_DESCRIPTOR told = {};
  EXPECT_OK(cuArray3DGetDescriptor_v2(&told, level));
  EXPECT_EQ(told.Width, 16u);
  EXPECT_EQ(told.Height, 4u);
  EXPECT_EQ(cuMipmappedArrayGetLevel(&level, mipmapped, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_OK(cuMipmappedArrayDestroy(mipmapped));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiMemory, SyncMemopsIsRemembered) {
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAlloc_v2(&address, 1 << 20));
  for (const unsigned value : {1u, 0u}) {
    bool seen = value == 0;
    EXPECT_OK(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address + 8));
    EXPECT_OK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    EXPECT_EQ(seen, value != 0);
  }
  EXPECT_OK(cuMemFree_v2(address));
  const unsigned on = 1;
  EXPECT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tessera::soft
