#include <unistd.h>

#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr std::size_t kGranule = 2 << 20;

constexpr CUmemAllocationProp kOnDevice = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
constexpr CUmemAllocationProp kOnHost = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
constexpr CUmemAccessDesc kDeviceAccess = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

class ApiVirtual : public SoftApiTest {
 protected:
  static void Fill(CUdeviceptr address, unsigned char value) {
    EXPECT_OK(cuMemsetD8_v2(address, value, kGranule));
    EXPECT_OK(cuCtxSynchronize());
  }
  static int Read(CUdeviceptr address) {
    unsigned char value = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&value, address, 1));
    return value;
  }
};

TEST_F(ApiVirtual, GranularityIsThatOfRealGpus) {
  std::size_t bytes = 0;
  EXPECT_OK(cuMemGetAllocationGranularity(&bytes, &kOnDevice, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(bytes, kGranule);
}

// The pager relies on this: one address, other memory behind it.
TEST_F(ApiVirtual, AddressIsRemappedToOtherMemory) {
  const std::size_t free = FreeBytes();
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAddressReserve(&address, 2 * kGranule, 0, 0, 0));
  CUmemGenericAllocationHandle device = 0;
  CUmemGenericAllocationHandle host = 0;
  ASSERT_OK(cuMemCreate(&device, 2 * kGranule, &kOnDevice, 0));
  ASSERT_OK(cuMemCreate(&host, 2 * kGranule, &kOnHost, 0));
  EXPECT_EQ(FreeBytes(), free - 2 * kGranule);

  ASSERT_OK(cuMemMap(address, 2 * kGranule, 0, device, 0));
  ASSERT_OK(cuMemSetAccess(address, 2 * kGranule, &kDeviceAccess, 1));
  Fill(address, 11);
  ASSERT_OK(cuMemUnmap(address, 2 * kGranule));
  ASSERT_OK(cuMemMap(address, 2 * kGranule, 0, host, 0));
  ASSERT_OK(cuMemSetAccess(address, 2 * kGranule, &kDeviceAccess, 1));
  Fill(address, 22);
  EXPECT_EQ(Read(address), 22);
  ASSERT_OK(cuMemUnmap(address, 2 * kGranule));
  ASSERT_OK(cuMemMap(address, 2 * kGranule, 0, device, 0));
  ASSERT_OK(cuMemSetAccess(address, 2 * kGranule, &kDeviceAccess, 1));
  EXPECT_EQ(Read(address), 11);

  ASSERT_OK(cuMemUnmap(address, 2 * kGranule));
  EXPECT_OK(cuMemRelease(device));
  EXPECT_OK(cuMemRelease(host));
  EXPECT_EQ(cuMemRelease(host), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemAddressFree(address, 2 * kGranule));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiVirtual, MemoryLivesWhileMapped) {
  const std::size_t free = FreeBytes();
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemAddressReserve(&address, kGranule, 0, 0, 0));
  ASSERT_OK(cuMemCreate(&memory, kGranule, &kOnDevice, 0));
  ASSERT_OK(cuMemMap(address, kGranule, 0, memory, 0));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(FreeBytes(), free - kGranule);
  CUmemGenericAllocationHandle again = 0;
  EXPECT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)));
  EXPECT_EQ(again, memory);
  EXPECT_OK(cuMemUnmap(address, kGranule));
  EXPECT_EQ(FreeBytes(), free - kGranule);
  EXPECT_OK(cuMemRelease(again));
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_OK(cuMemAddressFree(address, kGranule));
}

TEST_F(ApiVirtual, AccessDecides) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemAddressReserve(&address, kGranule, 0, 0, 0));
  ASSERT_OK(cuMemCreate(&memory, kGranule, &kOnDevice, 0));
  ASSERT_OK(cuMemMap(address, kGranule, 0, memory, 0));
  unsigned long long flags = 1;
  EXPECT_OK(cuMemGetAccess(&flags, &kDeviceAccess.location, address));
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_NONE));
  CUdeviceptr base = 0;
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, nullptr, address), CUDA_ERROR_NOT_FOUND);
  ASSERT_OK(cuMemSetAccess(address, kGranule, &kDeviceAccess, 1));
  EXPECT_OK(cuMemGetAccess(&flags, &kDeviceAccess.location, address));
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_OK(cuMemGetAddressRange_v2(&base, nullptr, address));
  for (const CUdevice none : {2, 64, -1}) {
    CUmemAccessDesc access = kDeviceAccess;
    access.location.id = none;
    EXPECT_EQ(cuMemSetAccess(address, kGranule, &access, 1), CUDA_ERROR_INVALID_VALUE) << none;
    EXPECT_EQ(cuMemGetAccess(&flags, &access.location, address), CUDA_ERROR_INVALID_DEVICE) << none;
  }
  EXPECT_OK(cuMemUnmap(address, kGranule));
  EXPECT_EQ(cuMemGetAccess(&flags, &kDeviceAccess.location, address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(address, kGranule));
}

// As an H200 was seen to answer (580.159.04): memory of cuMemAlloc is copied between GPUs without peer access, mapped
// memory only by calls that name both contexts.
TEST_F(ApiVirtual, CopiesBetweenGpusNeedAccessOrContexts) {
  CUcontext second = nullptr;
  CUdeviceptr there = 0, plain = 0, address = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&second, 1));
  ASSERT_OK(cuCtxPushCurrent_v2(second));
  ASSERT_OK(cuMemAlloc_v2(&there, kGranule));
  CUcontext popped = nullptr;
  ASSERT_OK(cuCtxPopCurrent_v2(&popped));
  ASSERT_OK(cuMemAlloc_v2(&plain, kGranule));
  EXPECT_OK(cuMemcpy(plain, there, 16));

  constexpr CUmemAllocationProp kOnSecond = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
  constexpr CUmemAccessDesc kSecondAccess = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_OK(cuMemAddressReserve(&address, kGranule, 0, 0, 0));
  ASSERT_OK(cuMemCreate(&memory, kGranule, &kOnSecond, 0));
  ASSERT_OK(cuMemMap(address, kGranule, 0, memory, 0));
  ASSERT_OK(cuMemSetAccess(address, kGranule, &kSecondAccess, 1));
  EXPECT_EQ(cuMemcpy(plain, address, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoD_v2(plain, address, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoDAsync_v2(address, plain, 16, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemcpyPeer(plain, context_, address, second, 16));
  ASSERT_OK(cuMemSetAccess(address, kGranule, &kDeviceAccess, 1));
  EXPECT_OK(cuMemcpyDtoD_v2(plain, address, 16));
  EXPECT_OK(cuMemUnmap(address, kGranule));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(address, kGranule));
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(1));
}

TEST_F(ApiVirtual, WrongArguments) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemAddressReserve(&address, 2 * kGranule, 0, 0, 0));
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(cuMemCreate(&memory, 4096, &kOnDevice, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&memory, 2 * kTestMemory, &kOnDevice, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_OK(cuMemCreate(&memory, kGranule, &kOnDevice, 0));
  EXPECT_EQ(cuMemMap(address, 2 * kGranule, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap(address + 4096, kGranule, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(address + 4 * kGranule, kGranule, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemMap(address, kGranule, 0, memory, 0));
  EXPECT_EQ(cuMemMap(address, kGranule, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(address, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(address, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  int file = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemUnmap(address, kGranule));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(address, 2 * kGranule));
}

// As an H200 was seen to answer (580.159.04).
TEST_F(ApiVirtual, OnlyWholeMemoryIsMapped) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemAddressReserve(&address, 2 * kGranule, 0, 0, 0));
  ASSERT_OK(cuMemCreate(&memory, 2 * kGranule, &kOnDevice, 0));
  EXPECT_EQ(cuMemMap(address, kGranule, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap(address, kGranule, kGranule, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_OK(cuMemMap(address, 2 * kGranule, 0, memory, 0));
  EXPECT_OK(cuMemUnmap(address, 2 * kGranule));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(address, 2 * kGranule));
}

// Likewise; and memory of the host serves copies as well as memory of the device does.
TEST_F(ApiVirtual, AttributesAndCopiesOfBothKinds) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memories[2] = {};
  ASSERT_OK(cuMemAddressReserve(&address, 2 * kGranule, 0, 0, 0));
  ASSERT_OK(cuMemCreate(&memories[0], kGranule, &kOnDevice, 0));
  ASSERT_OK(cuMemCreate(&memories[1], kGranule, &kOnHost, 0));
  for (const int i : {0, 1}) {
    const CUdeviceptr own = address + i * kGranule;
    ASSERT_OK(cuMemMap(own, kGranule, 0, memories[i], 0));
    ASSERT_OK(cuMemSetAccess(own, kGranule, &kDeviceAccess, 1));
  }
  for (const int i : {0, 1}) {
    const CUdeviceptr own = address + i * kGranule + 100;
    CUcontext context = context_;
    EXPECT_OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, own));
    EXPECT_EQ(context, nullptr);
    CUdeviceptr begin = 0;
    EXPECT_OK(cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, own));
    EXPECT_EQ(begin, address);
    std::size_t bytes = 0;
    EXPECT_OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, own));
    EXPECT_EQ(bytes, 2 * kGranule);
    unsigned type = 0;
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, own));
    EXPECT_EQ(type, static_cast<unsigned>(i == 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    Fill(address + i * kGranule, 44);
    EXPECT_EQ(Read(own), 44);
    const unsigned char value = 55;
    EXPECT_OK(cuMemcpyHtoD_v2(own, &value, 1));
    EXPECT_EQ(Read(own), 55);
    const CUdeviceptr other = address + (1 - i) * kGranule;
    EXPECT_OK(cuMemcpy(other, own, 1));
    EXPECT_EQ(Read(other), 55);
  }
  EXPECT_OK(cuMemUnmap(address, 2 * kGranule));
  for (const auto memory : memories) EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemAddressFree(address, 2 * kGranule));
}

TEST_F(ApiVirtual, ManyChunksNeedNoDescriptors) {
  constexpr std::size_t kChunks = 100;
  const int before = dup(0);
  close(before);
  std::vector<CUmemGenericAllocationHandle> chunks(kChunks);
  for (auto& chunk : chunks) ASSERT_OK(cuMemCreate(&chunk, kGranule, &kOnDevice, 0));
  const int after = dup(0);
  close(after);
  EXPECT_LE(after, before + 1);
  for (const auto chunk : chunks) EXPECT_OK(cuMemRelease(chunk));
}

TEST_F(ApiVirtual, ExportedMemoryIsTheSame) {
  CUmemAllocationProp shared = kOnDevice;
  shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_OK(cuMemCreate(&memory, kGranule, &shared, 0));
  int file = -1;
  ASSERT_OK(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAddressReserve(&address, 2 * kGranule, 0, 0, 0));
  ASSERT_OK(cuMemMap(address, kGranule, 0, memory, 0));
  ASSERT_OK(cuMemMap(address + kGranule, kGranule, 0, imported, 0));
  ASSERT_OK(cuMemSetAccess(address, 2 * kGranule, &kDeviceAccess, 1));
  Fill(address, 33);
  EXPECT_EQ(Read(address + kGranule + 5), 33);
  EXPECT_OK(cuMemUnmap(address, 2 * kGranule));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemRelease(imported));
  EXPECT_OK(cuMemAddressFree(address, 2 * kGranule));
  EXPECT_EQ(cuMemImportFromShareableHandle(&imported, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tessera::soft
