#include <thread>
#include <vector>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

using StreamTest = DriverTest;

TEST_F(StreamTest, CreatesAndDescribes) {
  CUstream stream = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamCreate(&stream, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamCreate(nullptr, 0));
  ASSERT_OK(d.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  EXPECT_OK(d.cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, -5);
  unsigned flags = 0;
  EXPECT_OK(d.cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  CUcontext of = nullptr;
  EXPECT_OK(d.cuStreamGetCtx(stream, &of));
  EXPECT_EQ(of, context);
  EXPECT_OK(d.cuStreamDestroy_v2(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuStreamDestroy_v2(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuStreamDestroy_v2(CU_STREAM_LEGACY));
}

TEST_F(StreamTest, IdsTellStreamsApart) {
  unsigned long long legacy = 0, null = 0, own = 0, made = 0;
  EXPECT_OK(d.cuStreamGetId(nullptr, &null));
  EXPECT_OK(d.cuStreamGetId(CU_STREAM_LEGACY, &legacy));
  EXPECT_OK(d.cuStreamGetId(CU_STREAM_PER_THREAD, &own));
  EXPECT_OK(d.cuStreamGetId(NewStream(), &made));
  EXPECT_EQ(null, legacy);
  EXPECT_NE(legacy, own);
  EXPECT_NE(own, made);
}

TEST_F(StreamTest, RunsInOrder) {
  const CUstream stream = NewStream();
  CUdeviceptr words = NewWords(1);
  std::uint32_t three = 3;
  void* parameters[] = {&words, &three};
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(d.cuMemsetD32Async(words, 10, 1, stream));
  EXPECT_OK(Launch(Kernel("add"), stream, parameters));
  EXPECT_OK(Launch(Kernel("add"), stream, parameters));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(stream));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(stream));
  EXPECT_OK(d.cuStreamQuery(stream));
  EXPECT_EQ(Word(words), 16u);
}

TEST_F(StreamTest, LegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  const CUstream other = NewStream(CU_STREAM_DEFAULT);
  const CUdeviceptr words = NewWords(1);
  Gate gate;
  gate.Hold(blocking);
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, nullptr));
  EXPECT_OK(d.cuMemsetD32Async(words, 2, 1, other));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(other));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(other));
  EXPECT_EQ(Word(words), 2u);
}

TEST_F(StreamTest, NonBlockingStreamsGoTheirOwnWay) {
  const CUstream free = NewStream();
  const CUdeviceptr words = NewWords(1);
  Gate gate;
  gate.Hold(nullptr);
  EXPECT_OK(d.cuMemsetD32Async(words, 7, 1, free));
  EXPECT_OK(d.cuStreamSynchronize(free));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(nullptr));
  gate.Open();
}

TEST_F(StreamTest, EachThreadHasItsOwnDefaultStream) {
  const CUdeviceptr words = NewWords(1);
  Gate gate;
  gate.Hold(CU_STREAM_PER_THREAD);
  std::thread([&] {
    EXPECT_OK(d.cuCtxSetCurrent(context));
    EXPECT_OK(d.cuMemsetD32Async_ptsz(words, 5, 1, nullptr));
    EXPECT_OK(d.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(CU_STREAM_PER_THREAD));
  EXPECT_OK(d.cuMemsetD32Async_ptsz(words, 6, 1, nullptr));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(Word(words), 6u);
}

TEST_F(StreamTest, WorkOfADestroyedStreamGoesOn) {
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  const CUdeviceptr words = NewWords(1);
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(d.cuMemsetD32Async(words, 9, 1, stream));
  EXPECT_OK(d.cuStreamDestroy_v2(stream));
  // The legacy stream waits for it all the same.
  EXPECT_OK(d.cuMemsetD32Async(words + 0, 9, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(nullptr));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(nullptr));
  EXPECT_EQ(Word(words), 9u);
}

TEST_F(StreamTest, HostFunctionsRunInOrderAndHoldUpNobodyElse) {
  const CUstream first = NewStream();
  const CUstream second = NewStream();
  const CUdeviceptr words = NewWords(1);
  std::atomic<bool> release = false, ran = false;
  struct Both {
    std::atomic<bool>&release, &ran;
  } both = {release, ran};
  EXPECT_OK(d.cuLaunchHostFunc(
      first,
      [](void* data) {
        auto& flags = *static_cast<Both*>(data);
        while (!flags.release) std::this_thread::yield();
        flags.ran = true;
      },
      &both));
  EXPECT_OK(d.cuMemsetD32Async(words, 4, 1, second));
  EXPECT_OK(d.cuStreamSynchronize(second));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(first));
  release = true;
  EXPECT_OK(d.cuStreamSynchronize(first));
  EXPECT_TRUE(ran);
}

TEST_F(StreamTest, CallbacksGetTheStreamAndItsStatus) {
  const CUstream stream = NewStream();
  struct Seen {
    CUstream stream = nullptr;
    CUresult status = CUDA_ERROR_UNKNOWN;
  } seen;
  EXPECT_OK(d.cuStreamAddCallback(
      stream, [](CUstream from, CUresult status, void* data) { *static_cast<Seen*>(data) = {from, status}; }, &seen,
      0));
  EXPECT_OK(d.cuStreamSynchronize(stream));
  EXPECT_EQ(seen.stream, stream);
  EXPECT_CU(CUDA_SUCCESS, seen.status);
}

TEST_F(StreamTest, WaitsForValues) {
  const CUdeviceptr words = NewWords(4);
  struct Case {
    unsigned condition;
    std::uint32_t before, wanted, after;  // `before` does not do, `after` does
  };
  for (const Case& c : {Case{CU_STREAM_WAIT_VALUE_GEQ, 4, 5, 6}, Case{CU_STREAM_WAIT_VALUE_EQ, 4, 5, 5},
                        Case{CU_STREAM_WAIT_VALUE_AND, 4, 2, 6}, Case{CU_STREAM_WAIT_VALUE_NOR, ~0u, 0, 6}}) {
    const CUstream waiter = NewStream();
    const CUstream writer = NewStream();
    EXPECT_OK(d.cuMemsetD32_v2(words, c.before, 1));
    EXPECT_OK(d.cuCtxSynchronize());
    EXPECT_OK(d.cuStreamWaitValue32_v2(waiter, words, c.wanted, c.condition));
    EXPECT_OK(d.cuMemsetD32Async(words + 4, c.condition + 1, 1, waiter));
    EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(waiter)) << c.condition;
    EXPECT_OK(d.cuStreamWriteValue32_v2(writer, words, c.after, 0));
    EXPECT_OK(d.cuStreamSynchronize(waiter));
    EXPECT_EQ(Word(words + 4), c.condition + 1);
  }
}

TEST_F(StreamTest, BatchesOfMemoryOperations) {
  const CUstream stream = NewStream();
  const CUdeviceptr words = NewWords(4);
  CUstreamBatchMemOpParams operations[3] = {};
  operations[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, words, {.value = 5}, 0, 0};
  operations[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, words, {.value = 5}, CU_STREAM_WAIT_VALUE_EQ, 0};
  operations[2].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, words + 8, {.value64 = 1ull << 32 | 7}, 0, 0};
  EXPECT_OK(d.cuStreamBatchMemOp_v2(stream, 3, operations, 0));
  EXPECT_OK(d.cuStreamSynchronize(stream));
  EXPECT_EQ(Word(words), 5u);
  EXPECT_EQ(Word(words + 8), 7u);
  EXPECT_EQ(Word(words + 12), 1u);
}

TEST_F(StreamTest, RefusesBadMemoryOperations) {
  const CUdeviceptr words = NewWords(4);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamWriteValue32_v2(nullptr, words + 2, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamWriteValue32_v2(nullptr, 2, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamWriteValue64_v2(nullptr, words + 4, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamWaitValue32_v2(nullptr, words, 1, 9));
  CUstreamBatchMemOpParams flush = {.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES};
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, d.cuStreamBatchMemOp_v2(nullptr, 1, &flush, 0));
}

TEST_F(StreamTest, KnowsItsAttributes) {
  const CUstream stream = NewStream();
  CUstreamAttrValue value = {};
  EXPECT_OK(d.cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  EXPECT_OK(d.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
}

// A launch waits while its stream is full, so the host cannot run away from the device.
TEST_F(StreamTest, TakesAThousandLaunchesAndThenWaits) {
  const CUstream stream = NewStream();
  const CUfunction empty = Kernel("empty");
  Gate gate;
  gate.Hold(stream);
  std::atomic<int> launched = 0;
  std::thread program([&] {
    EXPECT_OK(d.cuCtxSetCurrent(context));
    for (; launched < 5000; ++launched) EXPECT_OK(Launch(empty, stream));
  });
  while (launched < 1000) std::this_thread::yield();
  EXPECT_LT(launched, 5000);
  gate.Open();
  program.join();
  EXPECT_OK(d.cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace tessera::soft
