// A heap over a fake driver, with a mover. After each test everything is freed, and nothing may be left.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pager/heap/heap.h"
#include "pager/line/line_agent.h"
#include "pager/testing/fake_driver.h"
#include "pager/testing/fake_mover.h"
#include "pager/testing/fake_room.h"
#include "wire/line.h"

namespace tessera::pager {

inline constexpr std::uint64_t kMiB = 1u << 20;
inline constexpr std::uint64_t kGiB = 1u << 30;
inline const auto kContext = reinterpret_cast<cuda::CUcontext>(0x1000);
inline const auto kOtherContext = reinterpret_cast<cuda::CUcontext>(0x2000);

class HeapFixture : public testing::Test {
 protected:
  static constexpr std::uint64_t kChunk = wire::kChunkBytes;

  void TearDown() override {
    driver.FailCall(0, 0);
    heap->FreeAllOf(kContext, [](std::uint64_t) { return std::uint64_t{0}; });
    heap->FreeAllOf(kOtherContext, [](std::uint64_t) { return std::uint64_t{0}; });
    mover.Restart();  // what was on its way goes, too
    heap->Trim(kNever);
    EXPECT_EQ(driver.Handles(), 0u);
    EXPECT_EQ(driver.Mappings(), 0u);
    EXPECT_EQ(driver.DeviceBytes(), 0u);
    EXPECT_EQ(room.Taken(), 0u);
    const HeapFigures told = room.Told();
    EXPECT_EQ(told, (HeapFigures{.moved_out = told.moved_out, .moved_in = told.moved_in}));
    EXPECT_THAT(driver.Complaints(), testing::IsEmpty());
    EXPECT_THAT(mover.Complaints(), testing::IsEmpty());
  }

  cuda::CUdeviceptr Allocate(std::uint64_t bytes, cuda::CUcontext context = kContext) {
    cuda::CUdeviceptr address = 0;
    EXPECT_EQ(heap->Allocate(bytes, context, &address), cuda::CUDA_SUCCESS);
    return address;
  }
  // Blocks of one chunk each, with their number written into them.
  std::vector<cuda::CUdeviceptr> AllocateChunks(std::size_t count) {
    std::vector<cuda::CUdeviceptr> addresses;
    for (std::size_t i = 0; i < count; ++i) {
      addresses.push_back(Allocate(kChunk));
      driver.Write(addresses.back(), 100 + i);
    }
    return addresses;
  }
  // Whether what the room is told is what the heap has.
  void ExpectRightFigures() {
    const HeapFigures figures = heap->Figures();
    EXPECT_EQ(room.Taken(), figures.resident);
    EXPECT_EQ(room.Told(), figures);
    EXPECT_EQ(driver.DeviceBytes(), figures.resident + figures.coming);
  }

  FakeDriver driver;
  FakeRoom room;
  std::unique_ptr<Heap> heap = Heap::Make(driver.Functions(), 0, 64 * kGiB, false, room);
  LineAgent agent{*heap};
  FakeMover mover{driver, room, agent};
};

}  // namespace tessera::pager
