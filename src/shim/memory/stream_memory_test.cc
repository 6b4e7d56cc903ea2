// Memory in the order of streams that may be swapped, as the program allocates and frees it: through the hooks.
#include "shim/memory/stream_memory.h"

#include <thread>
#include <vector>

#include "shim/load/hook.h"
#include "shim/testing/stream_memory_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemAllocAsync_ptsz(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuMemPoolTrimTo(CUmemoryPool, size_t);
TESSERA_HOOK cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(CUstream, CUgraph*);
TESSERA_HOOK cuStreamDestroy_v2(CUstream);
TESSERA_HOOK cuCtxSynchronize();
TESSERA_HOOK cuCtxDestroy_v2(CUcontext);

namespace tessera::shim {
namespace {

class StreamMemoryTest : public StreamMemoryFixture {};

TEST_F(StreamMemoryTest, AllocationsComeFromTheHeapAndMove) {
  Begin();
  const std::size_t before = Cuda().Allocations();
  const CUdeviceptr address = Allocate(100 * kMiB), other = AllocateFrom(DefaultPool(), 20 * kMiB);
  EXPECT_TRUE(InHeap(address));
  EXPECT_TRUE(InHeap(other));
  EXPECT_EQ(Cuda().Allocations(), before) << "the driver's pool had no part in it";
  EXPECT_EQ(Charged(), 120 * kMiB);
  EXPECT_EQ(Page().pinned, 0u);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  Free(address);
  Free(other);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(StreamMemoryTest, TheSameStreamHasItAgainAtOnceWithoutADriverCall) {
  const CUcontext context = Begin();
  const CUstream stream = Cuda().MakeStream();
  const CUdeviceptr address = Allocate(100 * kMiB, stream);
  Free(address, stream);
  EXPECT_EQ(Allocate(100 * kMiB, stream), address);
  const std::uint64_t calls = Cuda().EventCalls(), questions = Cuda().PoolQuestions();
  for (int round = 0; round < 100; ++round) {
    Submit();
    Free(address, stream);
    ASSERT_EQ(Allocate(100 * kMiB - 512 * static_cast<std::uint64_t>(round % 3), stream), address);
  }
  EXPECT_EQ(Cuda().EventCalls(), calls);
  EXPECT_EQ(Cuda().PoolQuestions(), questions);
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
  EXPECT_EQ(Charged(), 100 * kMiB) << "it has not grown";
  Cuda().End(context);
}

TEST_F(StreamMemoryTest, OtherStreamsHaveItWhenTheStreamHasComeThere) {
  const CUcontext context = Begin();
  const CUstream one = Cuda().MakeStream(), other = Cuda().MakeStream();
  const CUdeviceptr address = Allocate(100 * kMiB, one);
  Submit();
  Free(address, one);
  const CUdeviceptr second = Allocate(100 * kMiB, other);
  EXPECT_NE(second, address) << "work may still use it";
  Cuda().End(context);
  Free(second, other);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Allocate(100 * kMiB, other), address);
}

TEST_F(StreamMemoryTest, WhatOneStreamFreesTheOthersReuseWithoutSynchronising) {
  const CUcontext context = Begin();
  const CUstream one = Cuda().MakeStream(), other = Cuda().MakeStream();
  const CUdeviceptr address = Allocate(100 * kMiB, one);
  Submit();
  Free(address, one);
  Cuda().End(context);
  EXPECT_EQ(Allocate(100 * kMiB, other), address);
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
}

TEST_F(StreamMemoryTest, WhenMemoryIsShortItWaitsForWhatWasFreed) {
  const CUcontext context = Begin();
  const CUstream one = Cuda().MakeStream(), other = Cuda().MakeStream();
  const CUdeviceptr address = Allocate(100 * kMiB, one);
  Submit();
  Free(address, one);
  NoRoom();
  EXPECT_EQ(Allocate(100 * kMiB, other), address);
  CUdeviceptr none = 0;
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.reserve = [](std::uint64_t) { return wire::Reserved{}; }; });
  EXPECT_EQ(cuMemAllocAsync(&none, 1ull << 40, one), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocAsync(&none, SIZE_MAX, one), CUDA_ERROR_OUT_OF_MEMORY);
  Cuda().End(context);
}

TEST_F(StreamMemoryTest, EachThreadsDefaultStreamIsItsOwn) {
  const CUcontext context = Begin();
  CUdeviceptr address = 0, again = 0, others = 0;
  ASSERT_EQ(cuMemAllocAsync_ptsz(&address, 100 * kMiB, nullptr), CUDA_SUCCESS);
  Submit();
  EXPECT_EQ(cuMemFreeAsync_ptsz(address, nullptr), CUDA_SUCCESS);
  std::thread([&] {
    FakeCuda::SetCurrent(context);
    EXPECT_EQ(cuMemAllocAsync_ptsz(&others, 100 * kMiB, nullptr), CUDA_SUCCESS);
    FakeCuda::SetCurrent(nullptr);
  }).join();
  EXPECT_NE(others, address);
  EXPECT_NE(Allocate(100 * kMiB), address) << "the legacy stream is another one, too";
  EXPECT_EQ(cuMemAllocAsync(&again, 100 * kMiB, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(again, address);
  Cuda().End(context);
}

TEST_F(StreamMemoryTest, AStreamThatIsDestroyedLeavesItsHandleToOthers) {
  const CUcontext context = Begin();
  const CUstream stream = Cuda().MakeStream();
  const CUdeviceptr address = Allocate(100 * kMiB, stream);
  Submit();
  Free(address, stream);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  Cuda().MakeStreamAgain(stream);
  EXPECT_NE(Allocate(100 * kMiB, stream), address) << "work of the stream that was may still use it";
  Cuda().End(context);
  EXPECT_EQ(Allocate(100 * kMiB, stream), address);
}

TEST_F(StreamMemoryTest, WhatAContextsStreamsFreedIsFreeWhenItEnds) {
  Begin();
  const CUcontext second = MakeContext();
  Submit();
  const CUdeviceptr address = Allocate(100 * kMiB, Cuda().MakeStream());
  Free(address, Cuda().MakeStream());
  EXPECT_EQ(cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(StreamMemoryTest, WhatAProgramLeavesAloneIsFreedForOthers) {
  const CUcontext context = Begin();
  StreamMemory& memory = Attached().Pager()->Ordered();
  GateKeeper& gates = Attached().Gates();
  const CUdeviceptr address = Allocate(100 * kMiB, Cuda().MakeStream());
  Submit();
  Free(address, Cuda().MakeStream());
  const std::uint64_t calls = Cuda().EventCalls();
  memory.FreeQuiet(gates);
  EXPECT_EQ(Cuda().EventCalls(), calls) << "it was freed just now";
  memory.FreeQuiet(gates);
  EXPECT_GT(Cuda().EventCalls(), calls);
  EXPECT_EQ(Charged(), 100 * kMiB) << "work may still use it";
  Cuda().End(context);
  memory.FreeQuiet(gates);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
}

TEST_F(StreamMemoryTest, WhileAStreamCapturesNothingIsLookedAt) {
  const CUcontext context = Begin();
  const CUstream stream = Cuda().MakeStream();
  Free(Allocate(100 * kMiB));
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const std::uint64_t calls = Cuda().EventCalls();
  for (int look = 0; look < 3; ++look) Attached().Pager()->Ordered().FreeQuiet(Attached().Gates());
  EXPECT_EQ(Cuda().EventCalls(), calls);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  Cuda().End(context);
}

TEST_F(StreamMemoryTest, EventsEndBeforeTheirContext) {
  Begin();
  const CUcontext second = MakeContext();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // what other tests left pending is marked
  const std::size_t before = Cuda().Events();
  const CUstream one = Cuda().MakeStream(), other = Cuda().MakeStream(), gone = Cuda().MakeStream();
  Submit();
  for (const CUstream stream : {one, gone}) Free(Allocate(20 * kMiB, stream), stream);
  Free(Allocate(40 * kMiB, other), other);  // the others' frees are marked
  EXPECT_EQ(cuStreamDestroy_v2(gone), CUDA_SUCCESS);
  Cuda().End(second);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // there are events to spare
  Submit();
  Free(Allocate(20 * kMiB, one), one);
  Free(Allocate(40 * kMiB, other), other);
  EXPECT_GT(Cuda().Events(), before);
  EXPECT_EQ(cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Events(), before);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(StreamMemoryTest, AContextThatStaysKeepsItsFreesInOrder) {
  const CUcontext context = Begin();
  const CUstream one = Cuda().MakeStream(), gone = Cuda().MakeStream();
  const CUdeviceptr kept = Allocate(100 * kMiB, one), last = Allocate(40 * kMiB, gone);
  Submit();
  Free(kept, one);
  Free(last, gone);
  EXPECT_EQ(cuStreamDestroy_v2(gone), CUDA_SUCCESS);
  StreamMemory& memory = Attached().Pager()->Ordered();
  memory.Mark();
  memory.DropEvents(context);
  memory.FreeReached();
  EXPECT_EQ(Charged(), 140 * kMiB) << "work may still use it";
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(StreamMemoryTest, PoolsOutliveContextsButNotTheLast) {
  Attached();
  Page().memory_credit = kCredit;
  Page().memory_credit_keep = kCredit;
  CUcontext contexts[2];
  for (CUcontext& context : contexts) {
    context = MakeContext();
    EXPECT_EQ(Attached().Memory().AddContext(), MemoryAccount::Answer::kYes);
  }
  const CUdeviceptr live = Allocate(100 * kMiB), freed = Allocate(20 * kMiB);
  Free(freed);
  EXPECT_EQ(cuCtxDestroy_v2(contexts[1]), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 100 * kMiB);
  EXPECT_TRUE(Cuda().memory.Valid(live, {device}));
  FakeCuda::SetCurrent(contexts[0]);
  EXPECT_EQ(cuCtxDestroy_v2(contexts[0]), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Attribute(DefaultPool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
}

TEST_F(StreamMemoryTest, ThreadsAllocateAndFreeAtOnce) {
  const CUcontext context = Begin();
  Cuda().EndAtOnce(context);
  std::vector<std::thread> threads;
  const CUstream shared = Cuda().MakeStream();
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      FakeCuda::SetCurrent(context);
      for (int round = 0; round < 100; ++round) {
        const CUstream stream = round % 3 == 0 ? shared : Cuda().MakeStream();
        const std::uint64_t bytes = static_cast<std::uint64_t>(1 + (round + n) % 4) * 4 * kMiB;
        CUdeviceptr address = 0, per_thread = 0;
        EXPECT_EQ(cuMemAllocAsync(&address, bytes, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuMemAllocAsync_ptsz(&per_thread, bytes, nullptr), CUDA_SUCCESS);
        EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuMemFreeAsync_ptsz(per_thread, nullptr), CUDA_SUCCESS);
        if (stream != shared) EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        if (round % 10 == n) EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
        if (round % 25 == n) EXPECT_EQ(cuMemPoolTrimTo(DefaultPool(), 0), CUDA_SUCCESS);
      }
      FakeCuda::SetCurrent(nullptr);
    });
  }
  threads.emplace_back([&] {
    for (int look = 0; look < 100; ++look) {
      Attached().Pager()->Ordered().FreeQuiet(Attached().Gates());
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cuMemPoolTrimTo(DefaultPool(), 0), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Attribute(DefaultPool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
}

// ---- frees of one allocator's memory by another's ----

TEST_F(StreamMemoryTest, MemoryOfAPoolIsFreedAsOtherMemory) {
  const CUcontext context = Begin();
  const CUdeviceptr address = Allocate(100 * kMiB);
  Submit();
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Synchronized(context), 1u) << "its memory may be used by work";
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Attribute(DefaultPool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE) << "twice";
}

TEST_F(StreamMemoryTest, OtherMemoryIsNotGivenToPoolsBeforeTheHeapHasIt) {
  const CUcontext context = Begin();
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 100 * kMiB), CUDA_SUCCESS);
  Submit();
  Free(address);
  EXPECT_NE(Allocate(100 * kMiB), address);
  Cuda().End(context);
}

TEST_F(StreamMemoryTest, NothingIsFreedTwice) {
  Begin();
  SetThreshold(DefaultPool(), UINT64_MAX);
  const CUdeviceptr address = Allocate(100 * kMiB);
  Submit();
  Free(address);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_ERROR_INVALID_VALUE) << "the pool keeps it";
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeAsync(address + 512, nullptr), CUDA_ERROR_INVALID_VALUE);
}

// ---- what stays with the driver ----

TEST_F(StreamMemoryTest, MemoryOfGraphsIsTheDrivers) {
  Begin();
  const CUstream stream = Cuda().MakeStream();
  const CUdeviceptr ours = Allocate(100 * kMiB);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const CUdeviceptr captured = Allocate(100 * kMiB, stream);
  EXPECT_FALSE(InHeap(captured));
  EXPECT_EQ(cuMemFreeAsync(ours, stream), CUDA_ERROR_INVALID_VALUE) << "the driver's answer";
  EXPECT_TRUE(InHeap(Allocate(2 * kMiB))) << "on a stream that does not capture";
  Free(ours);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(Page().pinned, 0u) << "what graphs have is measured";
  EXPECT_EQ(cuMemFreeAsync(captured, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 2 * kMiB);
}

TEST_F(StreamMemoryTest, WhatMakesNoSenseIsTheDriversToAnswer) {
  Begin();
  const std::size_t before = Cuda().Allocations();
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAllocAsync(&address, 0, nullptr), CUDA_SUCCESS) << "the fake driver's answer";
  EXPECT_EQ(Cuda().Allocations(), before + 1);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
