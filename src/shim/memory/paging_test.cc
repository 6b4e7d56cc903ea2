// Memory that may be swapped, as the program allocates it: through the hooks, with a mover that the test plays.
#include "shim/memory/paging.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <utility>

#include "base/seqpacket.h"
#include "base/testing/wait_until.h"
#include "shim/gate/capture.h"
#include "shim/load/hook.h"
#include "shim/testing/line_end.h"
#include "shim/testing/shim_fixture.h"
#include "wire/line.h"

TESSERA_HOOK cuMemAlloc_v2(tessera::cuda::CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(tessera::cuda::CUdeviceptr);
TESSERA_HOOK cuCtxSynchronize();
TESSERA_HOOK cuMemFreeAsync(tessera::cuda::CUdeviceptr, tessera::cuda::CUstream);
TESSERA_HOOK cuStreamBeginCapture_v2(tessera::cuda::CUstream, tessera::cuda::CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(tessera::cuda::CUstream, tessera::cuda::CUgraph*);
extern "C" int tessera_gate_slow(tessera::cuda::CUstream, const std::uint64_t*);
TESSERA_HOOK cuMemAllocPitch_v2(tessera::cuda::CUdeviceptr*, size_t*, size_t, size_t, unsigned);

namespace tessera::shim {
namespace {

using namespace cuda;
using wire::LineMessage;
using wire::LineType;

class PagingTest : public ShimFixture {
 protected:
  PagingTest() { Swap(); }

  Paging& Pager() {
    Paging* pager = Attached().Pager();
    EXPECT_NE(pager, nullptr);
    if (!pager) abort();
    return *pager;
  }
  // A context whose memory is the pager's.
  CUcontext Begin() {
    Pager();
    line = Daemon().TakeLine();
    Page().memory_credit = kCredit;
    Page().memory_credit_keep = kCredit;
    return MakeContext();
  }
  CUdeviceptr Allocate(std::uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  // A submission that goes on until Cuda().End.
  static void Submit() {
    EXPECT_EQ(REAL_AS(cuMemcpyHtoD_v2, CUdeviceptr, const void*, size_t)(1, "", 1), CUDA_SUCCESS);
  }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }

  void Say(const LineMessage& message) { SayOn(line, message); }
  LineMessage Hear() { return HearOn(line); }
  void Evict() { EvictOn(line, Cuda()); }

  static constexpr std::int64_t kCredit = std::int64_t{1} << 34;
  UniqueFd line;  // the mover's end
};

TEST_F(PagingTest, AllocationsComeFromTheHeapAndAreCharged) {
  Begin();
  const CUdeviceptr address = Allocate(100 * kMiB);
  EXPECT_EQ(Paging::Of(address), &Pager());
  EXPECT_EQ(Paging::Of(address + 100 * kMiB - 1), &Pager());
  EXPECT_EQ(Paging::Of(0x1234), nullptr);
  EXPECT_EQ(Charged(), 100 * kMiB);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Cuda().Allocations(), 0u) << "the driver's own allocator had no part in it";
}

TEST_F(PagingTest, RoomIsTakenForWhatIsMade) {
  Begin();
  const std::int64_t before = Page().room_credit;
  const CUdeviceptr address = Allocate(100 * kMiB);
  EXPECT_EQ(before - Page().room_credit, static_cast<std::int64_t>(2 * wire::kChunkBytes));
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  // Freed memory is kept for a moment.
  while (Page().room_credit != before) std::this_thread::yield();
  EXPECT_EQ(Pager().Heap().Figures().resident, 0u);
}

TEST_F(PagingTest, AFreeWaitsForTheWorkOfTheBlocksContext) {
  const CUcontext context = Begin();
  const CUdeviceptr one = Allocate(kMiB), other = Allocate(kMiB);
  EXPECT_EQ(cuMemFree_v2(one), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Synchronized(context), 1u);
  const CUcontext second = MakeContext();
  EXPECT_EQ(cuMemFree_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Synchronized(context), 2u);
  EXPECT_EQ(Cuda().Synchronized(second), 0u);
}

TEST_F(PagingTest, DuringACaptureAFreeIsPutOff) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(kMiB);
  AddCapture(CU_STREAM_PER_THREAD, context);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
  EXPECT_EQ(Charged(), kMiB);
  RemoveCapture(CU_STREAM_PER_THREAD);
  const CUdeviceptr next = Allocate(512);
  EXPECT_EQ(Cuda().Synchronized(context), 1u);
  EXPECT_EQ(Charged(), 512u);
  EXPECT_EQ(cuMemFree_v2(next), CUDA_SUCCESS);
}

// The pacer finds it, a moment after the work of the context has ended.
TEST_F(PagingTest, WhatWasFreedDuringACaptureNeedsNoOtherCall) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(kMiB);
  Submit();
  AddCapture(CU_STREAM_PER_THREAD, context);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  const auto look = [&] { Pager().Ordered().FreeQuiet(Attached().Gates()); };
  look();
  RemoveCapture(CU_STREAM_PER_THREAD);
  look();
  EXPECT_EQ(Charged(), kMiB) << "work may still use it";
  Cuda().End(context);
  look();
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PagingTest, AFreeInStreamOrderWaitsForNothing) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(100 * kMiB);
  Submit();
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
  const CUdeviceptr next = Allocate(100 * kMiB);
  EXPECT_NE(next, address) << "work may still use it";
  EXPECT_EQ(Charged(), 200 * kMiB);
  Cuda().End(context);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 100 * kMiB);
  EXPECT_EQ(Allocate(100 * kMiB), address);
}

TEST_F(PagingTest, AnAllocationThatNeedsItWaitsForIt) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(100 * kMiB);
  Submit();
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  Cuda().memory.SetCapacity(Cuda().memory.DeviceBytes());
  const std::uint64_t calls = Cuda().memory.Calls();
  EXPECT_EQ(Allocate(100 * kMiB), address);
  EXPECT_LT(Cuda().memory.Calls() - calls, 20u) << "the driver was asked again and again before";
  EXPECT_EQ(Cuda().Synchronized(context), 0u) << "for that work only";
  Cuda().memory.SetCapacity(UINT64_MAX);
}

TEST_F(PagingTest, AFreeInStreamOrderFailsAsTheDriversDoes) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(kMiB);
  EXPECT_EQ(cuMemFreeAsync(address + 512, nullptr), CUDA_ERROR_INVALID_VALUE);
  Submit();
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE) << "twice";
  Cuda().End(context);
}

TEST_F(PagingTest, AStreamThatCapturesFreesOnlyTheMemoryOfItsGraph) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(kMiB);
  const auto stream = reinterpret_cast<CUstream>(0x70);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE) << "the driver's answer";
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS) << "on a stream that does not capture";
  Cuda().End(context);
  EXPECT_EQ(Charged(), kMiB);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PagingTest, WhatIsNoBlockCannotBeFreed) {
  Begin();
  const CUdeviceptr address = Allocate(kMiB);
  EXPECT_EQ(cuMemFree_v2(address + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PagingTest, WhatCannotBeAllocatedIsNotCharged) {
  Begin();
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc_v2(nullptr, 5), CUDA_ERROR_INVALID_VALUE);
  Cuda().memory.FailCall(1, 100);
  EXPECT_NE(cuMemAlloc_v2(&address, 100 * kMiB), CUDA_SUCCESS);
  Cuda().memory.FailCall(0, 0);
  EXPECT_EQ(Charged(), 0u);
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.reserve = [](std::uint64_t) { return wire::Reserved{}; }; });
  EXPECT_EQ(cuMemAlloc_v2(&address, 1ull << 40), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PagingTest, RowsArePaddedAsTheDriverDoes) {
  Begin();
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 700, 10, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(Charged(), 10 * 1024u);
  EXPECT_EQ(cuMemAllocPitch_v2(&address, &pitch, 700, 10, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocPitch_v2(&address, nullptr, 700, 10, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocPitch_v2(&address, &pitch, SIZE_MAX, 10, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PagingTest, AContextThatEndsFreesItsMemory) {
  const CUcontext context = Begin();
  Allocate(kMiB);
  Allocate(3 * kMiB);
  const std::uint64_t below = Pager().Heap().NextId();
  const CUdeviceptr later = Allocate(kMiB);  // of a new context at the same address
  Pager().FreeAllOf(context, below);
  EXPECT_EQ(Charged(), kMiB);
  EXPECT_TRUE(Pager().Heap().Find(later).has_value());
}

TEST_F(PagingTest, WhatTheMoverTakesIsSeenInThePage) {
  Begin();
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  Cuda().memory.Write(address, 42);
  Evict();
  EXPECT_EQ(Page().swapped, wire::kChunkBytes);
  EXPECT_EQ(Page().moved_out, wire::kChunkBytes);
  Say({.type = LineType::kSettle});
  EXPECT_EQ(Hear().type, LineType::kSettled);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  EXPECT_EQ(Cuda().memory.Read(address), 42u);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Hear().type, LineType::kDropped) << "the mover hears that nobody needs it";
}

CUresult IsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

// The driver refuses to capture a copy whose addresses have no memory.
TEST_F(PagingTest, WhatIsCapturedWaitsForMemoryThatIsMoved) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  Evict();
  Cuda().Put(k_cuStreamIsCapturing, &IsCapturing);
  AddCapture(CU_STREAM_PER_THREAD, context);
  std::atomic<bool> valid = false;
  std::thread capturing([&] {
    FakeCuda::SetCurrent(context);
    const std::uint64_t call[16] = {};
    EXPECT_EQ(tessera_gate_slow(CU_STREAM_PER_THREAD, call), CUDA_SUCCESS);
    valid = Cuda().memory.Valid(address, {device});
  });
  WaitUntil([&] { return Page().calls == 1; });
  Say({.type = LineType::kSettle});
  EXPECT_EQ(Hear().type, LineType::kSettled);
  capturing.join();
  EXPECT_TRUE(valid);
  EXPECT_EQ(Page().calls, 0u);
  RemoveCapture(CU_STREAM_PER_THREAD);
}

TEST_F(PagingTest, ALineThatBreaksIsAskedForAgain) {
  Begin();
  const CUdeviceptr address = Allocate(wire::kChunkBytes);
  Evict();
  line.Reset();
  Daemon().Await<wire::Line>(gpu);
  for (; !line; line = Daemon().TakeLine()) std::this_thread::yield();
  const LineMessage adopt = Hear();
  EXPECT_EQ(adopt.type, LineType::kAdopt) << "a new mover hears what is out";
  EXPECT_EQ(adopt.key[0], 77u);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device})) << "every address is valid without a mover";
  EXPECT_TRUE(Pager().Safe());
}

TEST_F(PagingTest, RetreatingGivesTheLineUp) {
  Begin();
  Allocate(kMiB);
  std::byte packet[16];
  Pager().Retreat();
  EXPECT_EQ(ReceivePacket(line.Get(), packet), 0) << "the other end is closed";
}

TEST_F(PagingTest, AMessageThatIsNoneEndsTheLine) {
  Begin();
  std::byte nonsense[16] = {};
  EXPECT_TRUE(SendPacket(line.Get(), nonsense));
  std::byte packet[16];
  EXPECT_EQ(ReceivePacket(line.Get(), packet), 0);
}

TEST_F(PagingTest, AnotherLineIsFollowed) {
  Begin();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Pager().Follow(UniqueFd(ends[1]));
  const UniqueFd before = std::exchange(line, UniqueFd(ends[0]));  // else the thread would ask for one meanwhile
  EXPECT_EQ(Hear().type, LineType::kAdopt);
}

TEST_F(PagingTest, AfterTheEndTheDriverIsNotCalled) {
  Begin();
  Allocate(kMiB);
  Pager().Stop();
  std::byte packet[16];
  EXPECT_EQ(ReceivePacket(line.Get(), packet), 0);
  const std::uint64_t calls = Cuda().memory.Calls();
  CUdeviceptr address = 0;
  EXPECT_NE(cuMemAlloc_v2(&address, 200 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().memory.Calls(), calls);
}

TEST_F(PagingTest, AProgramMayWantTheDriversOwnMemory) {
  setenv("TESSERA_SWAP", "0", 1);
  EXPECT_EQ(Attached().Pager(), nullptr);
  unsetenv("TESSERA_SWAP");
  MakeContext();
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Allocations(), 1u);
  EXPECT_EQ(Page().pinned, kMiB);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Page().pinned, 0u);
}

CUresult HasNothing(int* value, CUdevice_attribute, CUdevice) { return *value = 0, CUDA_SUCCESS; }

TEST_F(PagingTest, ADriverThatCannotDoItIsSaidToBeOne) {
  void* const before = tessera_real_table[k_cuDeviceGetAttribute];
  Cuda().Put(k_cuDeviceGetAttribute, &HasNothing);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Attached().Pager(), nullptr);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no virtual memory management"), std::string::npos);
  tessera_real_table[k_cuDeviceGetAttribute] = before;
}

TEST_F(PagingTest, AContextIsNeeded) {
  Pager();
  FakeCuda::SetCurrent(nullptr);
  CUdeviceptr address = 0;
  EXPECT_EQ(Pager().Allocate(kMiB, &address), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace tessera::shim
