// Mappings of memory by handle: its room and its charge, what they wait for, and what ends them.
#include "shim/handles/handle_memory.h"

#include <atomic>
#include <thread>

#include "shim/load/hook.h"
#include "shim/testing/handle_fixture.h"
#include "shim/testing/line_end.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
TESSERA_HOOK cuMemAddressFree(CUdeviceptr, size_t);
TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);

namespace tessera::shim {
namespace {

class HandleMemoryTest : public HandleFixture {};

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
