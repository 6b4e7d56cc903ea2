#include "shim/memory/exports.h"

#include <thread>

#include "base/seqpacket.h"
#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"
#include "wire/line.h"

TESSERA_HOOK cuMemAlloc_v2(tessera::cuda::CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(tessera::cuda::CUdeviceptr);

namespace tessera::shim {
namespace {

using namespace cuda;
using wire::LineMessage;
using wire::LineType;

class ExportsTest : public ShimFixture {
 protected:
  ExportsTest() {
    Swap();
    context = (Attached(), MakeContext());
  }
  Paging& Pager() { return *Attached().Pager(); }
  CUdeviceptr Allocate(std::uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  wire::ExportKey Export(CUdeviceptr address) {
    wire::ExportKey key;
    EXPECT_EQ(ExportMemory(Pager(), address, &key), CUDA_SUCCESS);
    return key;
  }
  std::uint64_t Pinned() { return Pager().Heap().Figures().pinned; }
  // Brings chunks out, as a mover does.
  void Evict(std::uint32_t count) {
    const UniqueFd line = Daemon().TakeLine();
    const auto hear = [&](std::span<UniqueFd> fds) {
      alignas(8) std::byte packet[sizeof(LineMessage)];
      std::size_t received = 0;
      EXPECT_EQ(ReceivePacket(line.Get(), packet, fds, received), ssize_t{sizeof packet});
      return wire::ReadLine(packet).value_or(LineMessage{});
    };
    for (; count > 0; --count) {
      ASSERT_TRUE(SendPacket(line.Get(), wire::BytesOf(LineMessage{.type = LineType::kEvict, .count = 1})));
      UniqueFd fds[wire::kMostChunks], host;
      LineMessage stored{.type = LineType::kStored, .count = 1};
      stored.chunk[0] = hear(fds).chunk[0];
      stored.key[0] = 76 + count;
      const auto made = Cuda().memory.MakeForMover(wire::kChunkBytes, true, Cuda().memory.WordsOf(fds[0]), &host);
      const int fd = host.Get();
      ASSERT_TRUE(SendPacket(line.Get(), wire::BytesOf(stored), std::span(&fd, 1)));
      EXPECT_EQ(hear(fds).type, LineType::kFreed);
      Cuda().memory.DropForMover(made);
    }
  }

  CUcontext context = nullptr;
};

TEST_F(ExportsTest, TheDaemonGetsTheMemory) {
  const CUdeviceptr address = Allocate(100 * kMiB);
  const wire::ExportKey key = Export(address + 5);
  const auto told = Daemon().Await<wire::Export>(gpu);
  EXPECT_EQ(told.key, key);
  EXPECT_EQ(told.bytes, 100 * kMiB);
  EXPECT_EQ(told.chunks, 2u);
  EXPECT_EQ(told.chunk_bytes, wire::kChunkBytes);
  EXPECT_TRUE(IsExport(key));
  EXPECT_FALSE(IsExport({}));
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(ExportsTest, OneBlockHasOneKey) {
  const CUdeviceptr one = Allocate(100 * kMiB), other = Allocate(100 * kMiB);
  const wire::ExportKey key = Export(one);
  EXPECT_EQ(Export(one), key);
  EXPECT_NE(Export(other), key);
  EXPECT_EQ(Daemon().Count<wire::Export>(gpu), 2u);
}

TEST_F(ExportsTest, MemoryInManyChunksComesInParts) {
  const CUdeviceptr address = Allocate(20 * wire::kChunkBytes);
  Export(address);
  const auto all = Daemon().All<wire::Export>(gpu);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].first, 0u);
  EXPECT_EQ(all[1].first, 16u);
  EXPECT_EQ(all[1].chunks, 20u);
}

TEST_F(ExportsTest, WhatIsExportedIsPinned) {
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  const std::uint64_t before = Pinned();
  Export(address);
  EXPECT_EQ(Pinned(), before + wire::kChunkBytes);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Pinned(), before);
}

TEST_F(ExportsTest, AFreeTakesTheExportBack) {
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  const wire::ExportKey key = Export(address);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Daemon().Await<wire::Unexport>(gpu).key, key);
  EXPECT_FALSE(IsExport(key));
}

TEST_F(ExportsTest, AContextThatEndsTakesItsExportsBack) {
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  const wire::ExportKey key = Export(address);
  const CUcontext other = MakeContext();
  const wire::ExportKey stays = Export(Allocate(wire::kChunkBytes));
  Pager().FreeAllOf(context, Pager().Heap().NextId());
  EXPECT_EQ(Daemon().Await<wire::Unexport>(gpu).key, key);
  EXPECT_FALSE(IsExport(key));
  EXPECT_TRUE(IsExport(stays));
  Pager().FreeAllOf(other, 0);
  EXPECT_TRUE(IsExport(stays)) << "blocks that came after the context's end are another's";
  Pager().FreeAllOf(other, Pager().Heap().NextId());
  EXPECT_FALSE(IsExport(stays));
}

TEST_F(ExportsTest, WhatTheDaemonDoesNotTakeIsNotPinned) {
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.refuse_exports = true; });
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  const std::uint64_t before = Pinned();
  wire::ExportKey key;
  testing::internal::CaptureStderr();
  EXPECT_EQ(ExportMemory(Pager(), address, &key), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no more exports"), std::string::npos);
  EXPECT_EQ(Pinned(), before);
  EXPECT_FALSE(IsExport(key));
}

TEST_F(ExportsTest, AnAddressWithoutABlockHasNoHandle) {
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  wire::ExportKey key;
  EXPECT_NE(ExportMemory(Pager(), address, &key), CUDA_SUCCESS);
}

TEST_F(ExportsTest, ADeviceMayHaveTheMemory) {
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  EXPECT_EQ(PinForDevice(Pager(), address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Pinned(), wire::kChunkBytes);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(ExportsTest, WhatADeviceCannotHaveIsNotPinned) {
  Daemon().Set([](FakeDaemon::Answers& answers) {
    answers.room = [](std::uint64_t bytes) { return wire::RoomGranted{.bytes = bytes, .wait = 0}; };
  });
  const CUdeviceptr out = Allocate(2 * wire::kChunkBytes), other = Allocate(wire::kChunkBytes);
  Evict(3);
  ASSERT_EQ(Pager().Heap().Figures().swapped, 3 * wire::kChunkBytes);
  testing::internal::CaptureStderr();
  EXPECT_EQ(PinForDevice(Pager(), out, 3 * wire::kChunkBytes), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the GPU has no room to bring it back"), std::string::npos);
  EXPECT_EQ(Pager().Heap().Figures().recalled, 0u) << "as long as it is not, the daemon grants no room";
  EXPECT_FALSE(Pager().Heap().Find(out)->exported);
  EXPECT_FALSE(Pager().Heap().Find(other)->exported);
}

TEST_F(ExportsTest, ANewDaemonIsToldOfAll) {
  const wire::ExportKey key = Export(Allocate(wire::kChunkBytes));
  EndDaemon();
  StartDaemon().Set([](FakeDaemon::Answers& answers) { answers.attached.swaps = 1; });
  // The pacer, or this thread, reconnects.
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  const auto told = Daemon().Await<wire::Export>(gpu);
  EXPECT_EQ(told.key, key);
}

}  // namespace
}  // namespace tessera::shim
