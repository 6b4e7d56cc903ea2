// Memory that several processes hold is used up once, for as long as one of them holds it.
#include <fcntl.h>

#include <algorithm>
#include <string>

#include "base/unique_fd.h"
#include "soft/shared/shared_state.h"
#include "soft/testing/test_api.h"
#include "soft/testing/test_peer.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr std::size_t kBytes = 64 << 20;
constexpr CUmemAllocationProp kShared = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

class ApiShare : public SoftApiTest {
 protected:
  static CUmemGenericAllocationHandle Make(const CUmemAllocationProp& properties = kShared) {
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_OK(cuMemCreate(&memory, kBytes, &properties, 0));
    return memory;
  }
  static UniqueFd Export(CUmemGenericAllocationHandle memory) {
    int file = -1;
    EXPECT_OK(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return UniqueFd(file);
  }
  static CUresult Import(const UniqueFd& file, CUmemGenericAllocationHandle* memory) {
    return cuMemImportFromShareableHandle(memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(file.Get())),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  // Bytes charged to a process on device 0, without its context.
  static std::uint64_t ChargedTo(pid_t pid) {
    const auto state = SharedState::Attach(SharedState::DefaultPath(), "");
    const auto processes = (*state)->Processes(0);
    const auto found = std::ranges::find_if(
        processes, [&](const ProcessUse& use) { return use.pid == pid && use.bytes >= kTestContext; });
    return found == processes.end() ? 0 : found->bytes - kTestContext;
  }
};

TEST_F(ApiShare, ChargePassesToWhoStillHolds) {
  const std::size_t free = FreeBytes();
  const auto memory = Make();
  EXPECT_EQ(ChargedTo(getpid()), kBytes);
  {
    Peer peer("import", "", {Export(memory).Get()});
    ASSERT_EQ(peer.Line(), "held");
    EXPECT_EQ(FreeBytes(), free - kTestContext - kBytes);
    EXPECT_EQ(ChargedTo(peer.pid()), 0u);
    EXPECT_OK(cuMemRelease(memory));
    EXPECT_EQ(FreeBytes(), free - kTestContext - kBytes);
    EXPECT_EQ(ChargedTo(peer.pid()), kBytes);
    EXPECT_EQ(ChargedTo(getpid()), 0u);
    CUdeviceptr too_much = 0;
    EXPECT_EQ(cuMemAlloc_v2(&too_much, free - kBytes), CUDA_ERROR_OUT_OF_MEMORY);
    peer.Kill();
  }
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiShare, OutlivesItsMakerWhoIsKilled) {
  const std::size_t free = FreeBytes();
  CUmemGenericAllocationHandle memory = 0;
  {
    Peer peer("make", std::to_string(kBytes));
    const std::string path = "/proc/" + std::to_string(peer.pid()) + "/fd/" + peer.Line();
    const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_OK(Import(file, &memory));
    EXPECT_EQ(FreeBytes(), free - kTestContext - kBytes);
    EXPECT_EQ(ChargedTo(peer.pid()), kBytes);
    peer.Kill();
  }
  EXPECT_EQ(FreeBytes(), free - kBytes);
  EXPECT_EQ(ChargedTo(getpid()), kBytes);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiShare, AMappingHoldsToo) {
  const std::size_t free = FreeBytes();
  const auto memory = Make();
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  ASSERT_OK(cuMemMap(address, kBytes, 0, memory, 0));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(FreeBytes(), free - kBytes);
  EXPECT_OK(cuMemUnmap(address, kBytes));
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_OK(cuMemAddressFree(address, kBytes));
}

TEST_F(ApiShare, WhatNobodyHoldsIsChargedToWhoImportsIt) {
  const std::size_t free = FreeBytes();
  auto memory = Make();
  const UniqueFd file = Export(memory);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(FreeBytes(), free);
  CUdeviceptr rest = 0;
  ASSERT_OK(cuMemAlloc_v2(&rest, free - kBytes / 2));
  EXPECT_EQ(Import(file, &memory), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemFree_v2(rest));
  EXPECT_OK(Import(file, &memory));
  EXPECT_EQ(FreeBytes(), free - kBytes);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiShare, HandlesOfOneProcessCountOnce) {
  const std::size_t free = FreeBytes();
  const auto memory = Make();
  const UniqueFd file = Export(memory);
  CUmemGenericAllocationHandle imported[2] = {};
  for (auto& each : imported) ASSERT_OK(Import(file, &each));
  EXPECT_NE(imported[0], imported[1]);
  EXPECT_EQ(FreeBytes(), free - kBytes);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemRelease(imported[0]));
  EXPECT_EQ(FreeBytes(), free - kBytes);
  EXPECT_OK(cuMemRelease(imported[1]));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiShare, ImportedIsAsGoodAsMade) {
  CUmemAllocationProp direct = kShared;
  direct.allocFlags.gpuDirectRDMACapable = 1;
  const auto memory = Make(direct);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_OK(Import(Export(memory), &imported));
  CUmemAllocationProp properties = {};
  ASSERT_OK(cuMemGetAllocationPropertiesFromHandle(&properties, imported));
  EXPECT_EQ(properties.type, direct.type);
  EXPECT_EQ(properties.requestedHandleTypes, direct.requestedHandleTypes);
  EXPECT_EQ(properties.location.type, direct.location.type);
  EXPECT_EQ(properties.location.id, direct.location.id);
  EXPECT_EQ(properties.allocFlags.gpuDirectRDMACapable, 1);
  for (const auto each : {memory, imported}) EXPECT_OK(cuMemRelease(each));
}

// As with driver 580: tests/hw/programs/runtime/reexport.cu.
TEST_F(ApiShare, ImportedIsNotExported) {
  const auto memory = Make(kShared);
  const UniqueFd file = Export(memory);
  CUmemGenericAllocationHandle imported = 0, again = 0;
  ASSERT_OK(Import(file, &imported));
  int other = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&other, imported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  // Its maker exports it as often as it likes, and a descriptor is good for any number of imports, also after that.
  EXPECT_OK(Import(Export(memory), &again));
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemRelease(again));
  EXPECT_OK(Import(file, &again));
  EXPECT_OK(cuMemRelease(again));
  EXPECT_OK(cuMemRelease(imported));
}

TEST_F(ApiShare, MemoryOfTheHostIsNotTheDevices) {
  const std::size_t free = FreeBytes();
  CUmemAllocationProp host = kShared;
  host.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  const auto memory = Make(host);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_OK(Import(Export(memory), &imported));
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_OK(cuMemRelease(memory));
  EXPECT_OK(cuMemRelease(imported));
}

}  // namespace
}  // namespace tessera::soft
