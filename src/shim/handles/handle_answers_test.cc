// What a program is told of memory by handle, and of the addresses where it is mapped.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "shim/load/hook.h"
#include "shim/testing/handle_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAddressFree(CUdeviceptr, size_t);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*);
TESSERA_HOOK cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp*, CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
TESSERA_HOOK cuMemGetAccess(unsigned long long*, const CUmemLocation*, CUdeviceptr);
TESSERA_HOOK cuMemGetAddressRange_v2(CUdeviceptr*, size_t*, CUdeviceptr);
TESSERA_HOOK cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);

namespace tessera::shim {
namespace {

class HandleAnswersTest : public HandleFixture {};

TEST_F(HandleAnswersTest, WhatAProgramAsksIsAnswered) {
  const auto handle = Create(4 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr address = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(address, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  CUmemAllocationProp prop{};
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&prop, handle), CUDA_SUCCESS);
  EXPECT_EQ(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  unsigned long long flags = 9;
  EXPECT_EQ(cuMemGetAccess(&flags, &here, address), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u) << "nobody has access yet";
  EXPECT_EQ(Open(address + 2 * kMiB, 2 * kMiB), CUDA_ERROR_INVALID_VALUE) << "a part";
  EXPECT_EQ(Open(address, 6 * kMiB), CUDA_ERROR_INVALID_VALUE) << "a hole";
  ASSERT_EQ(Open(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAccess(&flags, &here, address + 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(flags, 3u);
  CUmemGenericAllocationHandle same = 0;
  EXPECT_EQ(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(address + 5)), CUDA_SUCCESS);
  EXPECT_EQ(same, handle);
  EXPECT_EQ(cuMemMap(address + 2 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "where something is";
  EXPECT_EQ(cuMemMap(address + 8 * kMiB, 2 * kMiB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED) << "a part";
  EXPECT_EQ(cuMemMap(address + 62 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "beyond the end";
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB) << "it was retained";
  EXPECT_EQ(cuMemRelease(same), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 64 * kMiB), CUDA_SUCCESS);
}

template <typename Value>
std::pair<CUresult, Value> Ask(CUpointer_attribute attribute, CUdeviceptr at) {
  Value value{};
  const CUresult result = cuPointerGetAttribute(&value, attribute, at);
  return {result, value};
}

TEST_F(HandleAnswersTest, ASecondMappingChangesNoAnswerAboutTheFirst) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle), again = address + 128 * kMiB, inside = address + kSecond + 8;
  const CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, device}, other = {CU_MEM_LOCATION_TYPE_DEVICE, 63};
  const CUmemAccessDesc reads = {own, CU_MEM_ACCESS_FLAGS_PROT_READ};
  ASSERT_EQ(cuMemSetAccess(address, kPieces, &reads, 1), CUDA_SUCCESS);
  constexpr CUpointer_attribute kAsked[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
      CU_POINTER_ATTRIBUTE_MAPPING_SIZE,     CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR};
  const auto answers = [&](CUdeviceptr at) {
    std::vector<std::pair<CUresult, std::uint64_t>> all;
    for (const CUpointer_attribute attribute : kAsked) all.push_back(Ask<std::uint64_t>(attribute, at));
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    const CUresult found = cuMemGetAddressRange_v2(&base, &bytes, at);
    all.push_back({found, base});
    all.push_back({found, bytes});
    for (const CUmemLocation& location : {own, other}) {
      unsigned long long flags = 9;
      const CUresult result = cuMemGetAccess(&flags, &location, at);
      all.push_back({result, flags});
    }
    return all;
  };
  const auto before = answers(inside);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].first, CUDA_SUCCESS) << i;
  ASSERT_EQ(cuMemMap(again, kPieces, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(answers(inside), before);
  using Words = std::pair<CUresult, std::uint64_t>;
  EXPECT_EQ(Ask<std::uint64_t>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, again + kSecond), Words(CUDA_SUCCESS, again));
  EXPECT_EQ(Ask<std::uint64_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, again + kSecond), Words(CUDA_SUCCESS, kPieces));
  EXPECT_EQ(Ask<std::uint64_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, again), Words(CUDA_SUCCESS, 256 * kMiB));
  EXPECT_NE(Ask<std::uint64_t>(CU_POINTER_ATTRIBUTE_BUFFER_ID, again).second,
            Ask<std::uint64_t>(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside).second);
  unsigned long long flags = 9;
  EXPECT_EQ(cuMemGetAccess(&flags, &own, again), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u) << "nobody has set any there";
  ASSERT_EQ(Open(again, kPieces), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAccess(&flags, &own, again), CUDA_SUCCESS);
  EXPECT_EQ(flags, 3u);
}

// The driver knows the address: a piece of a handle that is not mapped any more lies there.
TEST_F(HandleAnswersTest, WhatIsNotMappedHasNoHandleAndNoAccess) {
  Cuda().Put(
      k_cuMemRetainAllocationHandle,
      +[](CUmemGenericAllocationHandle* handle, void*) { return *handle = 5, CUDA_SUCCESS; });
  CUmemGenericAllocationHandle handle = 0, same = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  ASSERT_EQ(cuMemUnmap(address, kPieces), CUDA_SUCCESS);
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  unsigned long long flags = 9;
  EXPECT_EQ(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(address)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetAccess(&flags, &here, address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HandleAnswersTest, ADeviceThatCannotReachTheMemoryGetsNoAccess) {
  void* const can_access_peer = tessera_real_table[k_cuDeviceCanAccessPeer];
  Cuda().Put(
      k_cuDeviceCanAccessPeer, +[](int* can, CUdevice device, CUdevice) {
        return *can = 0, device >= 0 && device < 64 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
      });
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  for (const CUdevice peer : {62, 64, 1000, -1}) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, peer}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuMemSetAccess(address, kPieces, &access, 1), CUDA_ERROR_INVALID_VALUE) << peer;
  }
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  const CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, 1000}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(cuMemSetAccess(address, kPieces, &none, 1), CUDA_ERROR_INVALID_VALUE);
  tessera_real_table[k_cuDeviceCanAccessPeer] = can_access_peer;
}

}  // namespace
}  // namespace tessera::shim
