// Calls for managed memory: the fake driver allows them for any memory, as a driver may for memory that was mapped.
#include <gtest/gtest.h>

#include "shim/load/hook.h"
#include "shim/memory/exports.h"
#include "shim/memory/imports.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemAllocManaged(CUdeviceptr*, size_t, unsigned);
TESSERA_HOOK cuMemAdvise(CUdeviceptr, std::size_t, CUmem_advise, CUdevice);
TESSERA_HOOK cuMemAdvise_v2(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation);
TESSERA_HOOK cuMemRangeGetAttribute(void*, std::size_t, CUmem_range_attribute, CUdeviceptr, std::size_t);
TESSERA_HOOK cuMemRangeGetAttributes(void**, std::size_t*, CUmem_range_attribute*, std::size_t, CUdeviceptr,
                                     std::size_t);
TESSERA_HOOK cuMemPrefetchAsync(CUdeviceptr, std::size_t, CUdevice, CUstream);
TESSERA_HOOK cuMemPrefetchAsync_v2_ptsz(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream);
TESSERA_HOOK cuMemPrefetchBatchAsync(CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*, std::size_t*, std::size_t,
                                     unsigned long long, CUstream);
TESSERA_HOOK cuMemDiscardBatchAsync(CUdeviceptr*, std::size_t*, std::size_t, unsigned long long, CUstream);
TESSERA_HOOK cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*,
                                                    std::size_t*, std::size_t, unsigned long long, CUstream);

namespace tessera::shim {
namespace {

class MemoryAdviceTest : public ShimFixture {
 protected:
  MemoryAdviceTest() {
    Swap(wire::GateOrder::kFree);
    Attached();
    MakeContext();
    Cuda().Put(k_cuMemAdvise_v2, +[](CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation) { return CUDA_SUCCESS; });
    Cuda().Put(
        k_cuMemRangeGetAttribute,
        +[](void*, std::size_t, CUmem_range_attribute, CUdeviceptr, std::size_t) { return CUDA_SUCCESS; });
    Cuda().Put(
        k_cuMemRangeGetAttributes, +[](void**, std::size_t*, CUmem_range_attribute*, std::size_t, CUdeviceptr,
                                       std::size_t) { return CUDA_SUCCESS; });
    Cuda().Put(k_cuMemPrefetchAsync, +[](CUdeviceptr, std::size_t, CUdevice, CUstream) { return CUDA_SUCCESS; });
    Cuda().Put(
        k_cuMemPrefetchAsync_v2_ptsz,
        +[](CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream) { return CUDA_SUCCESS; });
    const auto batch = +[](CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*, std::size_t*, std::size_t,
                           unsigned long long, CUstream) { return CUDA_SUCCESS; };
    Cuda().Put(k_cuMemPrefetchBatchAsync, batch);
    Cuda().Put(k_cuMemDiscardAndPrefetchBatchAsync_ptsz, batch);
    Cuda().Put(
        k_cuMemDiscardBatchAsync,
        +[](CUdeviceptr*, std::size_t*, std::size_t, unsigned long long, CUstream) { return CUDA_SUCCESS; });
  }

  // What every one of the calls answers; kMixed if they do not agree. `managed` stands beside the address in batches.
  int Answer(CUdeviceptr address) {
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUdeviceptr addresses[] = {managed, address};
    std::size_t sizes[] = {4096, 4096}, start = 0, data_bytes = 4;
    int data = 0;
    void* datas[] = {&data};
    auto attribute = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    const CUresult answers[] = {
        cuMemAdvise(address, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, device),
        cuMemAdvise_v2(address, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, location),
        cuMemRangeGetAttribute(&data, data_bytes, attribute, address, 4096),
        cuMemRangeGetAttributes(datas, &data_bytes, &attribute, 1, address, 4096),
        cuMemPrefetchAsync(address, 4096, device, nullptr),
        cuMemPrefetchAsync_v2_ptsz(address, 4096, location, 0, nullptr),
        cuMemPrefetchBatchAsync(addresses, sizes, 2, &location, &start, 1, 0, nullptr),
        cuMemDiscardBatchAsync(addresses, sizes, 2, 0, nullptr),
        cuMemDiscardAndPrefetchBatchAsync_ptsz(addresses, sizes, 2, &location, &start, 1, 0, nullptr),
    };
    for (const CUresult each : answers)
      if (each != answers[0]) return kMixed;
    return answers[0];
  }

  static constexpr int kMixed = -1;
  CUdeviceptr managed = 0x7000;
};

TEST_F(MemoryAdviceTest, MemoryThatCanMoveIsNotManaged) {
  CUdeviceptr address = 0, pooled = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 64 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&pooled, 64 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Answer(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Answer(address + 64 * kMiB - 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Answer(pooled), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryAdviceTest, NorIsMemoryOfAnotherProgram) {
  CUdeviceptr owner = 0, address = 0;
  wire::ExportKey key;
  ASSERT_EQ(cuMemAlloc_v2(&owner, 64 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(ExportMemory(*Attached().Pager(), owner, &key), CUDA_SUCCESS);
  ASSERT_EQ(ImportMemory({gpu, device}, key, &address), CUDA_SUCCESS);
  EXPECT_EQ(Answer(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(CloseImport(address));
}

TEST_F(MemoryAdviceTest, AboutOtherMemoryTheDriverAnswers) {
  ASSERT_EQ(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(Answer(managed), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
