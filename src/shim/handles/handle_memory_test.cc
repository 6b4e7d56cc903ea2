// Memory by handle through the hooks, where memory is swapped.
#include "shim/handles/handle_memory.h"

#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "shim/device/current.h"
#include "shim/load/hook.h"
#include "shim/testing/gpu_with_block.h"
#include "shim/testing/line_end.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
TESSERA_HOOK cuMemAddressFree(CUdeviceptr, size_t);
TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*);
TESSERA_HOOK cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp*, CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                          unsigned long long);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
TESSERA_HOOK cuMemGetAccess(unsigned long long*, const CUmemLocation*, CUdeviceptr);
TESSERA_HOOK cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, int, unsigned long long);
TESSERA_HOOK cuMemGetAddressRange_v2(CUdeviceptr*, size_t*, CUdeviceptr);
TESSERA_HOOK cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long);
TESSERA_HOOK cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr);
TESSERA_HOOK cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr);
TESSERA_HOOK cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void**, void**);

namespace tessera::shim {
namespace {

class HandleMemoryTest : public ShimFixture {
 protected:
  HandleMemoryTest() {
    Swap();
    Attached();
    line_ = Daemon().TakeLine();
    Page().memory_credit = kCredit;
    Page().memory_credit_keep = kCredit;
    context_ = MakeContext();
    room_before_ = Page().room_credit;
    gpu_before_ = Cuda().memory.DeviceBytes();
  }

  CUmemAllocationProp OnDevice(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) const {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = types;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return prop;
  }
  CUmemGenericAllocationHandle Create(std::uint64_t bytes, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = OnDevice(types);
    EXPECT_EQ(cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUdeviceptr Reserve(std::uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  bool Ours(CUdeviceptr address) { return Paging::Of(address) == Attached().Pager(); }
  CUresult Open(CUdeviceptr address, std::uint64_t bytes) const {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(address, bytes, &access, 1);
  }
  // GPU memory that this test has.
  std::uint64_t OnGpu() const { return Cuda().memory.DeviceBytes() - gpu_before_; }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }
  std::uint64_t RoomTaken() { return static_cast<std::uint64_t>(room_before_ - Page().room_credit); }
  std::uint64_t PinnedBy(wire::PinReason reason) { return Page().pinned_by[static_cast<std::size_t>(reason)]; }
  std::uint64_t Vmm() { return PinnedBy(wire::PinReason::kVmm); }

  // Memory in two pieces, with a word in each, mapped at the begin of a reservation of 256 MiB.
  CUdeviceptr MapInPieces(CUmemGenericAllocationHandle* handle) {
    Cuda().Put(k_cuMemcpyDtoD_v2, &CopyWords);
    Cuda().Put(k_cuMemGetAccess, &DriverAccess);
    reach = {device};
    *handle = Create(kPieces, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const CUdeviceptr address = Reserve(256 * kMiB);
    EXPECT_EQ(cuMemMap(address, kPieces, 0, *handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(Open(address, kPieces), CUDA_SUCCESS);
    Cuda().memory.Write(address, 77);
    Cuda().memory.Write(address + kSecond, 78);
    return address;
  }
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
  static void ExpectWords(CUdeviceptr address) {
    EXPECT_EQ(Cuda().memory.Read(address), 77u);
    EXPECT_EQ(Cuda().memory.Read(address + kSecond), 78u);
  }

  // Functions of the driver.
  static CUresult CopyWords(CUdeviceptr to, CUdeviceptr from, std::size_t) {
    REAL_AS(cuCtxGetDevice, CUdevice*)(&copied_on);
    Cuda().memory.Write(to, Cuda().memory.Read(from));
    // `from` is in pieces, `to` is not.
    Cuda().memory.Write(to + kSecond, Cuda().memory.Read(from + kSecond));
    return CUDA_SUCCESS;
  }
  static CUresult DriverAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr) {
    return *flags = reach.contains(location->id) ? 3 : 0, CUDA_SUCCESS;
  }
  static CUresult DmaBuf(void*, CUdeviceptr, std::size_t, int, unsigned long long) { return CUDA_SUCCESS; }

  static constexpr std::uint64_t kPieces = 100 * kMiB, kSecond = 70 * kMiB;
  static inline CUdevice copied_on = -1;
  static inline std::set<CUdevice> reach;

  static constexpr std::int64_t kCredit = std::int64_t{1} << 34;
  CUcontext context_ = nullptr;
  UniqueFd line_;
  std::int64_t room_before_ = 0;
  std::uint64_t gpu_before_ = 0;
};

TEST_F(HandleMemoryTest, AHandleHasRoomAndMemoryOnceItIsMapped) {
  const auto handle = Create(20 * kMiB);
  const CUdeviceptr address = Reserve(256 * kMiB);
  EXPECT_TRUE(Ours(address));
  EXPECT_EQ(Charged(), 20 * kMiB);
  EXPECT_EQ(RoomTaken(), 20 * kMiB);
  EXPECT_EQ(Vmm(), 20 * kMiB) << "it has nothing to move";
  EXPECT_EQ(OnGpu(), 0u);
  ASSERT_EQ(cuMemMap(address, 20 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Open(address, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(address + 20 * kMiB - 8, {device}));
  EXPECT_EQ(Vmm(), 0u);
  EXPECT_EQ(RoomTaken(), 20 * kMiB);
  EXPECT_EQ(Attached().Pager()->Heap().Figures().resident, 20 * kMiB);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 20 * kMiB) << "its mapping keeps it";
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(address, 256 * kMiB), CUDA_ERROR_INVALID_VALUE) << "something is mapped there";
  EXPECT_EQ(cuMemUnmap(address, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(RoomTaken(), 0u);
  EXPECT_EQ(OnGpu(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 256 * kMiB), CUDA_SUCCESS);
}

TEST_F(HandleMemoryTest, AFailedMappingLeavesTheHandleAsItWas) {
  const auto handle = Create(130 * kMiB);
  const CUdeviceptr address = Reserve(256 * kMiB);
  // Create, Map and SetAccess of each of three parts.
  for (std::uint64_t call = 0; call < 9; ++call) {
    Cuda().memory.FailCall(Cuda().memory.Calls() + 1 + call);
    const CUresult result = cuMemMap(address, 130 * kMiB, 0, handle, 0);
    Cuda().memory.FailCall(0, 0);
    if (result == CUDA_SUCCESS) {  // memory that is on its way was waited for
      EXPECT_EQ(cuMemUnmap(address, 130 * kMiB), CUDA_SUCCESS);
      continue;
    }
    EXPECT_EQ(RoomTaken(), 0u);
    EXPECT_EQ(Vmm(), 0u);
    EXPECT_EQ(Charged(), 130 * kMiB);
    EXPECT_EQ(OnGpu(), 0u);
  }
  ASSERT_EQ(cuMemMap(address, 130 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(RoomTaken(), 130 * kMiB);
  EXPECT_EQ(cuMemUnmap(address, 130 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(RoomTaken(), 0u);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 256 * kMiB), CUDA_SUCCESS);
}

TEST_F(HandleMemoryTest, AMappingThatLeavesTooMuchHostMemoryBlankIsRefused) {
  std::uint64_t asked = 0;
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.blank = [&](std::uint64_t bytes) {
      asked += bytes;
      return wire::Reserved{.bytes = asked <= 100 * kMiB ? bytes : 0};
    };
  });
  const CUdeviceptr address = Reserve(256 * kMiB);
  const auto first = Create(2 * kMiB), second = Create(2 * kMiB);
  ASSERT_EQ(cuMemMap(address, 2 * kMiB, 0, first, 0), CUDA_SUCCESS);
  EXPECT_EQ(Page().blank, 62 * kMiB);
  EXPECT_EQ(Page().blank_planned, 0u);
  EXPECT_EQ(cuMemMap(address + 64 * kMiB, 2 * kMiB, 0, second, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Page().blank, 62 * kMiB);
  EXPECT_EQ(Page().blank_planned, 0u);
  EXPECT_EQ(Page().oom_errors, 1u);
  EXPECT_EQ(cuMemMap(address + 2 * kMiB, 2 * kMiB, 0, second, 0), CUDA_SUCCESS) << "beside the first one";
  EXPECT_EQ(Page().blank, 60 * kMiB);
  EXPECT_EQ(asked, 124 * kMiB);
  EXPECT_EQ(cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  EXPECT_EQ(Page().blank, 0u);
  Daemon().Set([](FakeDaemon::Answers& answers) {
    answers.blank = [](std::uint64_t bytes) { return wire::Reserved{.bytes = bytes}; };
  });
  EXPECT_EQ(cuMemAddressFree(address, 256 * kMiB), CUDA_SUCCESS);
}

// A chunk with something mapped is out, and the next mapping in it has to wait until it is back.
TEST_F(HandleMemoryTest, AMappingThatWaitsHoldsUpNoOthers) {
  bool refuses_what_is_pinned = false;
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.room = [&](std::uint64_t bytes) {
      if (bytes > 0) return wire::RoomGranted{.bytes = bytes};
      return wire::RoomGranted{.bytes = 0, .wait = !refuses_what_is_pinned || Vmm() == 0};
    };
  });
  const CUdeviceptr address = Reserve(256 * kMiB);
  for (const bool refuses : {false, true}) {
    refuses_what_is_pinned = refuses;
    const auto first = Create(2 * kMiB), second = Create(2 * kMiB), third = Create(2 * kMiB);
    ASSERT_EQ(cuMemMap(address, 2 * kMiB, 0, first, 0), CUDA_SUCCESS);
    EvictOn(line_, Cuda());
    EXPECT_EQ(Page().swapped, 2 * kMiB);
    ASSERT_EQ(cuMemMap(address + 64 * kMiB, 2 * kMiB, 0, third, 0), CUDA_SUCCESS);
    const std::size_t asked = Daemon().Count<wire::Room>(gpu);
    std::thread waits([&] {
      EXPECT_EQ(cuMemMap(address + 2 * kMiB, 2 * kMiB, 0, second, 0), CUDA_SUCCESS) << "what is refused at first comes";
    });
    Daemon().Await<wire::Room>(gpu, asked + (refuses ? 2 : 1));
    EXPECT_EQ(Vmm(), refuses ? 0u : 2 * kMiB) << "its room makes place for what has to come back";
    // Others go on, with other memory; what it has in hand is not ended.
    EXPECT_EQ(cuMemRelease(second), CUDA_SUCCESS);
    EXPECT_EQ(Open(address + 64 * kMiB, 2 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(cuMemUnmap(address + 64 * kMiB, 2 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(third), CUDA_SUCCESS);
    EXPECT_EQ(cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(first), CUDA_SUCCESS);  // nothing has to come back any more
    EXPECT_EQ(HearOn(line_).type, wire::LineType::kDropped);
    waits.join();
    EXPECT_EQ(Charged(), 2 * kMiB);
    room_before_ -= 2 * std::int64_t{kMiB};  // a daemon would have taken that of what went out
    EXPECT_EQ(RoomTaken(), 2 * kMiB);
    EXPECT_EQ(cuMemUnmap(address + 2 * kMiB, 2 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(Charged(), 0u);
    EXPECT_EQ(RoomTaken(), 0u);
    EXPECT_EQ(Vmm(), 0u);
  }
  EXPECT_EQ(cuMemAddressFree(address, 256 * kMiB), CUDA_SUCCESS);
  Daemon().Set([](FakeDaemon::Answers& answers) {
    answers.room = [](std::uint64_t bytes) { return wire::RoomGranted{.bytes = bytes}; };
  });
}

// The second of its parts has to wait until what lies beside it is back.
TEST_F(HandleMemoryTest, WhatIsMappedIsNotPlannedAnyMore) {
  Daemon().Set([](FakeDaemon::Answers& answers) {
    answers.room = [](std::uint64_t bytes) { return wire::RoomGranted{.bytes = bytes, .wait = bytes == 0}; };
  });
  const CUdeviceptr address = Reserve(256 * kMiB);
  const auto first = Create(2 * kMiB), second = Create(4 * kMiB);
  ASSERT_EQ(cuMemMap(address + 96 * kMiB, 2 * kMiB, 0, first, 0), CUDA_SUCCESS);
  EvictOn(line_, Cuda());
  const std::size_t asked = Daemon().Count<wire::Room>(gpu);
  std::thread waits([&] { EXPECT_EQ(cuMemMap(address + 62 * kMiB, 4 * kMiB, 0, second, 0), CUDA_SUCCESS); });
  Daemon().Await<wire::Room>(gpu, asked + 1);
  EXPECT_GE(Page().blank, 62 * kMiB) << "the first part";
  EXPECT_EQ(Page().blank_planned, 0u);
  EXPECT_EQ(cuMemUnmap(address + 96 * kMiB, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  EXPECT_EQ(HearOn(line_).type, wire::LineType::kDropped);
  waits.join();
  EXPECT_EQ(Page().blank, 124 * kMiB);
  EXPECT_EQ(Page().blank_planned, 0u);
  EXPECT_EQ(cuMemUnmap(address + 62 * kMiB, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(address, 256 * kMiB), CUDA_SUCCESS);
  Daemon().Set([](FakeDaemon::Answers& answers) {
    answers.room = [](std::uint64_t bytes) { return wire::RoomGranted{.bytes = bytes}; };
  });
}

TEST_F(HandleMemoryTest, TwoThatMapTheSameWaitForEachOther) {
  const CUdeviceptr address = Reserve(64 * kMiB);
  for (int round = 0; round < 50; ++round) {
    const auto handle = Create(2 * kMiB);
    CUresult results[2] = {};
    std::thread other([&] { results[0] = cuMemMap(address, 2 * kMiB, 0, handle, 0); });
    results[1] = cuMemMap(address, 2 * kMiB, 0, handle, 0);
    other.join();
    EXPECT_EQ((results[0] == CUDA_SUCCESS) + (results[1] == CUDA_SUCCESS), 1);
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    EXPECT_EQ(cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
  }
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(RoomTaken(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(HandleMemoryTest, WhatCannotMoveIsTheDrivers) {
  CUmemAllocationProp compressed = OnDevice();
  compressed.allocFlags.compressionType = 1;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, 4 * kMiB, &compressed, 0), CUDA_SUCCESS);
  EXPECT_EQ(OnGpu(), 4 * kMiB);
  EXPECT_EQ(Vmm(), 4 * kMiB);
  const CUdeviceptr address = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(address + 2 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Open(address + 2 * kMiB, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(address + 4 * kMiB, {device}));
  const auto movable = Create(2 * kMiB);
  ASSERT_EQ(cuMemMap(address, 2 * kMiB, 0, movable, 0), CUDA_SUCCESS);
  EXPECT_EQ(Attached().Pager()->Heap().Figures().pinned, 2 * kMiB) << "its chunk has something else in it";
  EXPECT_EQ(cuMemUnmap(address, 6 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(movable), CUDA_SUCCESS);
  EXPECT_EQ(Vmm(), 0u);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(HandleMemoryTest, AddressesWithAWishAreTheDrivers) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAddressReserve(&address, 64 * kMiB, 512 * kMiB, 0, 0), CUDA_SUCCESS);
  EXPECT_FALSE(Ours(address));
  const auto handle = Create(20 * kMiB);
  ASSERT_EQ(cuMemMap(address, 20 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(Open(address, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  EXPECT_EQ(Vmm(), 20 * kMiB) << "it cannot move there";
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 20 * kMiB);
  EXPECT_EQ(cuMemUnmap(address, 20 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Vmm(), 0u);
  EXPECT_EQ(cuMemAddressFree(address, 64 * kMiB), CUDA_SUCCESS);
}

TEST_F(HandleMemoryTest, ExportedMemoryIsPinnedForThatReason) {
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

TEST_F(HandleMemoryTest, WhatAProgramAsksIsAnswered) {
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

// ---- memory in pieces ----

TEST_F(HandleMemoryTest, WhatANicHasIsNotReplaced) {
  Cuda().Put(k_cuMemGetHandleForAddressRange, &DmaBuf);
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  int fd = -1;
  ASSERT_EQ(cuMemGetHandleForAddressRange(&fd, address, kPieces, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(ExportOfPiecesThatSomethingHas(handle), CUDA_ERROR_NOT_SUPPORTED);
  ExpectWords(address);
}

TEST_F(HandleMemoryTest, WhatANicHasOfFixedMemoryIsNotReplaced) {
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

TEST_F(HandleMemoryTest, WhatIsAboutToBeRegisteredIsNotReplaced) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const unsigned on = 1;
  ASSERT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(ExportOfPiecesThatSomethingHas(handle), CUDA_ERROR_NOT_SUPPORTED);
  ExpectWords(address);
}

std::uint64_t mappings_when_bound;

TEST_F(HandleMemoryTest, WhatIsBoundByItsAddressIsOnePieceBefore) {
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

TEST_F(HandleMemoryTest, AnExportNeedsNoContext) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  std::thread([&] { EXPECT_EQ(Export(handle), CUDA_SUCCESS); }).join();
  EXPECT_EQ(copied_on, device);
  ExpectWords(address);
}

TEST_F(HandleMemoryTest, AnExportCopiesOnTheMemorysOwnGpu) {
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const CUcontext other = Cuda().MakeContext(63);
  FakeCuda::SetCurrent(other);
  EXPECT_EQ(Export(handle), CUDA_SUCCESS);
  EXPECT_EQ(CurrentContext(), other);
  EXPECT_EQ(copied_on, device);
  ExpectWords(address);
}

CUcontext peer_context;
std::atomic<bool> peer_works;
bool moved_under_it;

TEST_F(HandleMemoryTest, AnExportWaitsForTheWorkOfEachGpuThatReachesTheMemory) {
  GpuWithBlock peer;
  peer_context = peer.context;
  const CUdevice peer_device = CurrentAttachment()->Device();
  ASSERT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  FakeCuda::SetCurrent(context_);
  CUmemGenericAllocationHandle handle = 0;
  const CUdeviceptr address = MapInPieces(&handle);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, peer_device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuMemSetAccess(address, kPieces, &access, 1), CUDA_SUCCESS);
  reach = {device, peer_device};
  peer_works = true;
  std::thread ends([] {
    usleep(20'000);  // the export waits by then, or is yet to
    peer_works = false;
    Cuda().End(peer_context);
  });
  Cuda().memory.OnUnmap([] { moved_under_it |= peer_works; });
  EXPECT_EQ(Export(handle), CUDA_SUCCESS);
  ends.join();
  Cuda().memory.OnUnmap({});
  EXPECT_FALSE(moved_under_it);
  EXPECT_FALSE(peer_works);
  ExpectWords(address);
}

// ---- what a program sees ----

template <typename Value>
std::pair<CUresult, Value> Ask(CUpointer_attribute attribute, CUdeviceptr at) {
  Value value{};
  const CUresult result = cuPointerGetAttribute(&value, attribute, at);
  return {result, value};
}

TEST_F(HandleMemoryTest, ASecondMappingChangesNoAnswerAboutTheFirst) {
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
TEST_F(HandleMemoryTest, WhatIsNotMappedHasNoHandleAndNoAccess) {
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

TEST_F(HandleMemoryTest, ADeviceThatCannotReachTheMemoryGetsNoAccess) {
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
}

std::atomic<int> freeing;
CUresult (*real_unmap)(CUdeviceptr, std::size_t);

TEST_F(HandleMemoryTest, OneOfTwoThreadsFreesAReservation) {
  CUmemAllocationProp compressed = OnDevice();
  compressed.allocFlags.compressionType = 1;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, 4 * kMiB, &compressed, 0), CUDA_SUCCESS);
  const CUdeviceptr mapped = Reserve(64 * kMiB), address = Reserve(64 * kMiB);
  ASSERT_EQ(cuMemMap(mapped, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  // A call that goes on until both are about to free, and have had time to come as far as they can.
  real_unmap = reinterpret_cast<CUresult (*)(CUdeviceptr, std::size_t)>(tessera_real_table[k_cuMemUnmap]);
  Cuda().Put(
      k_cuMemUnmap, +[](CUdeviceptr at, std::size_t bytes) {
        for (int yields = 0; freeing < 2 || yields < 1000; ++yields) std::this_thread::yield();
        return real_unmap(at, bytes);
      });
  CUresult freed[2];
  const auto frees = [&](CUresult& result) {
    ++freeing;
    result = cuMemAddressFree(address, 64 * kMiB);
  };
  std::thread unmaps([&] { EXPECT_EQ(cuMemUnmap(mapped, 4 * kMiB), CUDA_SUCCESS); });
  std::thread one([&] { frees(freed[0]); }), other([&] { frees(freed[1]); });
  one.join();
  other.join();
  unmaps.join();
  Cuda().Put(k_cuMemUnmap, real_unmap);
  EXPECT_NE(freed[0], freed[1]);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(mapped, 64 * kMiB), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
