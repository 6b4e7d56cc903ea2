// Calls while a stream is captured. The expectations are what driver 580 answers.
#include <functional>
#include <thread>
#include <vector>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

enum class Caller { kSame, kOther, kOtherRelaxed };

class CaptureTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    other_stream = NewStream();
    event = NewEvent();
    ASSERT_OK(d.cuEventRecord(event, other_stream));
    words = NewWords(16);
    ASSERT_OK(d.cuStreamSynchronize(other_stream));
  }

  CUgraph End(CUstream of, CUresult expected = CUDA_SUCCESS) const {
    CUgraph graph = nullptr;
    EXPECT_CU(expected, d.cuStreamEndCapture(of, &graph));
    EXPECT_EQ(graph != nullptr, expected == CUDA_SUCCESS);
    return graph;
  }

  std::size_t Nodes(CUgraph graph) const {
    std::size_t count = 0;
    EXPECT_OK(d.cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }

  CUstreamCaptureStatus Status(CUstream of) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_OK(d.cuStreamIsCapturing(of, &status));
    return status;
  }

  // Calls `call` while `stream`, a new one, is captured. The answer, and whether the capture survived it.
  struct Answer {
    CUresult result;
    bool captures;
  };
  Answer During(CUstreamCaptureMode mode, Caller caller, unsigned stream_flags, const std::function<CUresult()>& call) {
    stream = NewStream(stream_flags);
    captured_event = NewEvent();
    EXPECT_OK(d.cuStreamBeginCapture_v2(stream, mode));
    EXPECT_OK(d.cuEventRecord(captured_event, stream));
    Answer answer = {};
    if (caller == Caller::kSame) {
      answer.result = call();
    } else {
      std::thread([&] {
        d.cuCtxSetCurrent(context);
        CUstreamCaptureMode relaxed = kRelaxed;
        if (caller == Caller::kOtherRelaxed) d.cuThreadExchangeStreamCaptureMode(&relaxed);
        answer.result = call();
      }).join();
    }
    answer.captures = Status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    End(stream, answer.captures ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return answer;
  }

  CUstream stream = nullptr;  // the captured one, in During
  CUevent captured_event = nullptr;
  CUstream other_stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr words = 0;
};

TEST_F(CaptureTest, UnsafeCallsAreForbiddenByModes) {
  CUgraph empty = nullptr;
  ASSERT_OK(d.cuGraphCreate(&empty, 0));
  const std::pair<const char*, std::function<CUresult()>> calls[] = {
      {"cuMemAlloc",
       [&] {
         CUdeviceptr address = 0;
         return d.cuMemAlloc_v2(&address, 64);
       }},
      {"cuMemFree", [&] { return d.cuMemFree_v2(0); }},
      {"cuMemAllocAsync in a stream that is not captured",
       [&] {
         CUdeviceptr address = 0;
         return d.cuMemAllocAsync(&address, 64, other_stream);
       }},
      {"cuCtxSetLimit", [&] { return d.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048); }},
      {"cuMemPoolGetAttribute",
       [&] {
         CUmemoryPool pool = nullptr;
         std::uint64_t reserved = 0;
         const CUresult got = d.cuDeviceGetDefaultMemPool(&pool, 0);
         if (got != CUDA_SUCCESS) return got;
         return d.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
       }},
      {"cuEventQuery", [&] { return d.cuEventQuery(event); }},
      {"cuEventSynchronize", [&] { return d.cuEventSynchronize(event); }},
      {"cuStreamQuery", [&] { return d.cuStreamQuery(other_stream); }},
      {"cuStreamSynchronize", [&] { return d.cuStreamSynchronize(other_stream); }},
      {"cuGraphInstantiate",
       [&] {
         CUgraphExec exec = nullptr;
         return d.cuGraphInstantiateWithFlags(&exec, empty, 0);
       }},
  };
  struct Case {
    CUstreamCaptureMode mode;
    Caller caller;
    bool allowed;
  };
  for (const auto& [name, call] : calls) {
    for (const Case& c : {Case{kGlobal, Caller::kSame, false}, Case{kGlobal, Caller::kOther, false},
                          Case{kGlobal, Caller::kOtherRelaxed, true}, Case{kThreadLocal, Caller::kSame, false},
                          Case{kThreadLocal, Caller::kOther, true}, Case{kRelaxed, Caller::kSame, true},
                          Case{kRelaxed, Caller::kOther, true}}) {
      const Answer answer = During(c.mode, c.caller, CU_STREAM_NON_BLOCKING, call);
      EXPECT_CU(c.allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, answer.result)
          << name << " mode " << c.mode << " caller " << static_cast<int>(c.caller);
      EXPECT_EQ(answer.captures, c.allowed) << name;
    }
  }
}

TEST_F(CaptureTest, WhatModesDoNotMatterFor) {
  struct Case {
    const char* name;
    CUresult expected;
    bool captures;
    std::function<CUresult()> call;
  };
  std::uint32_t word = 0;
  float milliseconds = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  int priority = 0;
  std::size_t bytes = 0;
  CUstream made = nullptr;
  CUevent made_event = nullptr;
  CUmodule loaded = nullptr;
  const CUfunction empty = Kernel("empty");
  const Case cases[] = {
      {"cuMemGetInfo", CUDA_SUCCESS, true, [&] { return d.cuMemGetInfo_v2(&bytes, &bytes); }},
      {"cuMemcpyHtoD", CUDA_SUCCESS, true, [&] { return d.cuMemcpyHtoD_v2(words, &word, 4); }},
      {"cuMemsetD32 other stream", CUDA_SUCCESS, true, [&] { return d.cuMemsetD32Async(words, 0, 1, other_stream); }},
      {"cuLaunchKernel other stream", CUDA_SUCCESS, true, [&] { return Launch(empty, other_stream); }},
      {"cuEventCreate", CUDA_SUCCESS, true, [&] { return d.cuEventCreate(&made_event, 0); }},
      {"cuStreamCreate", CUDA_SUCCESS, true, [&] { return d.cuStreamCreate(&made, 0); }},
      {"cuModuleLoadData", CUDA_SUCCESS, true, [&] { return d.cuModuleLoadData(&loaded, kTestPtx); }},
      {"cuEventElapsedTime", CUDA_SUCCESS, true, [&] { return d.cuEventElapsedTime(&milliseconds, event, event); }},
      {"cuStreamGetPriority", CUDA_SUCCESS, true, [&] { return d.cuStreamGetPriority(stream, &priority); }},
      {"cuStreamBeginCapture again", CUDA_ERROR_ILLEGAL_STATE, true,
       [&] { return d.cuStreamBeginCapture_v2(stream, kRelaxed); }},
      {"cuStreamBeginCapture legacy", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true,
       [&] { return d.cuStreamBeginCapture_v2(nullptr, kRelaxed); }},
      {"cuEventElapsedTime captured", CUDA_ERROR_CAPTURED_EVENT, true,
       [&] { return d.cuEventElapsedTime(&milliseconds, captured_event, captured_event); }},
      {"cuMemFreeAsync of what no graph has", CUDA_ERROR_INVALID_VALUE, true,
       [&] { return d.cuMemFreeAsync(words, stream); }},
      {"cuCtxSynchronize", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false, [&] { return d.cuCtxSynchronize(); }},
      {"cuStreamSynchronize captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false,
       [&] { return d.cuStreamSynchronize(stream); }},
      {"cuStreamQuery captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false, [&] { return d.cuStreamQuery(stream); }},
      {"cuStreamGetFlags", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false,
       [&] { return d.cuStreamGetFlags(stream, &flags); }},
      {"cuStreamGetId", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false, [&] { return d.cuStreamGetId(stream, &id); }},
      {"cuStreamAddCallback", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false,
       [&] { return d.cuStreamAddCallback(stream, [](CUstream, CUresult, void*) {}, nullptr, 0); }},
      {"cuLaunchKernel with a bad shape", CUDA_ERROR_INVALID_VALUE, false,
       [&] { return Launch(empty, stream, nullptr, 0); }},
      {"cuStreamWaitEvent not captured", CUDA_ERROR_STREAM_CAPTURE_ISOLATION, false,
       [&] { return d.cuStreamWaitEvent(stream, event, 0); }},
      {"cuEventQuery captured", CUDA_ERROR_CAPTURED_EVENT, false, [&] { return d.cuEventQuery(captured_event); }},
      {"cuEventSynchronize captured", CUDA_ERROR_CAPTURED_EVENT, false,
       [&] { return d.cuEventSynchronize(captured_event); }},
      {"cuStreamWaitEvent legacy", CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, false,
       [&] { return d.cuStreamWaitEvent(nullptr, captured_event, 0); }},
  };
  for (const Case& c : cases) {
    for (const auto mode : {kGlobal, kThreadLocal, kRelaxed}) {
      for (const auto caller : {Caller::kSame, Caller::kOther}) {
        const Answer answer = During(mode, caller, CU_STREAM_NON_BLOCKING, c.call);
        EXPECT_CU(c.expected, answer.result) << c.name << " mode " << mode;
        EXPECT_EQ(answer.captures, c.captures) << c.name << " mode " << mode;
      }
    }
  }
}

TEST_F(CaptureTest, TheLegacyStreamMustNotWaitForACapture) {
  std::uint32_t word = 0;
  const std::pair<const char*, std::function<CUresult()>> calls[] = {
      {"cuMemcpyHtoD", [&] { return d.cuMemcpyHtoD_v2(words, &word, 4); }},
      {"cuMemsetD32", [&] { return d.cuMemsetD32_v2(words, 0, 1); }},
      {"cuLaunchKernel", [&] { return Launch(Kernel("empty"), nullptr); }},
      {"cuEventRecord", [&] { return d.cuEventRecord(event, nullptr); }},
      {"cuStreamQuery", [&] { return d.cuStreamQuery(nullptr); }},
      {"cuStreamSynchronize", [&] { return d.cuStreamSynchronize(nullptr); }},
      {"cuStreamBeginCapture", [&] { return d.cuStreamBeginCapture_v2(nullptr, kRelaxed); }},
  };
  for (const auto& [name, call] : calls) {
    const Answer answer = During(kRelaxed, Caller::kOther, CU_STREAM_DEFAULT, call);
    EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, answer.result) << name;
    EXPECT_FALSE(answer.captures) << name;
  }
  // Asking about the legacy stream is refused as well, but harms nothing.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const Answer asked =
      During(kGlobal, Caller::kSame, CU_STREAM_DEFAULT, [&] { return d.cuStreamIsCapturing(nullptr, &status); });
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, asked.result);
  EXPECT_TRUE(asked.captures);
}

TEST_F(CaptureTest, RecordsAndReplays) {
  const CUstream s = NewStream();
  std::uint32_t five = 5;
  void* parameters[] = {&words, &five};
  ASSERT_OK(d.cuStreamBeginCapture_v2(s, kGlobal));
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 16, s));
  EXPECT_OK(Launch(Kernel("add"), s, parameters, 2, 8));
  five = 100;  // parameters were copied
  EXPECT_OK(Launch(Kernel("add"), s, parameters, 1, 4));
  const CUgraph graph = End(s);
  EXPECT_EQ(Nodes(graph), 3u);
  EXPECT_EQ(Word(words), 0u);  // nothing ran

  CUgraphExec exec = nullptr;
  ASSERT_OK(d.cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) EXPECT_OK(d.cuGraphLaunch(exec, s));
  EXPECT_OK(d.cuStreamSynchronize(s));
  EXPECT_EQ(Word(words), 106u);
  EXPECT_EQ(Word(words + 15 * 4), 6u);
}

TEST_F(CaptureTest, ForksAndJoinsThroughEvents) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent fork = NewEvent(), join = NewEvent();
  ASSERT_OK(d.cuStreamBeginCapture_v2(a, kGlobal));
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, a));
  EXPECT_OK(d.cuEventRecord(fork, a));
  EXPECT_OK(d.cuStreamWaitEvent(b, fork, 0));
  EXPECT_EQ(Status(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_OK(d.cuMemsetD32Async(words + 4, 2, 1, b));
  EXPECT_OK(d.cuMemsetD32Async(words + 8, 3, 1, a));
  EXPECT_OK(d.cuEventRecord(join, b));
  EXPECT_OK(d.cuStreamWaitEvent(a, join, 0));
  EXPECT_OK(d.cuMemsetD32Async(words + 12, 4, 1, a));
  const CUgraph graph = End(a);
  EXPECT_EQ(Status(b), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Nodes(graph), 4u);
  std::size_t edges = 0;
  EXPECT_OK(d.cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 4u);  // a diamond
  // An event of a capture that has ended tells nothing.
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuEventQuery(join));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamWaitEvent(NewStream(), join, 0));
}

TEST_F(CaptureTest, RefusesToEndWithLooseEnds) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent fork = NewEvent();
  ASSERT_OK(d.cuStreamBeginCapture_v2(a, kGlobal));
  EXPECT_OK(d.cuEventRecord(fork, a));
  EXPECT_OK(d.cuStreamWaitEvent(b, fork, 0));
  EXPECT_OK(d.cuMemsetD32Async(words, 2, 1, b));
  End(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Status(b), CU_STREAM_CAPTURE_STATUS_NONE);

  // Only the stream that began it ends it, and in its thread.
  ASSERT_OK(d.cuStreamBeginCapture_v2(a, kGlobal));
  EXPECT_OK(d.cuEventRecord(fork, a));
  EXPECT_OK(d.cuStreamWaitEvent(b, fork, 0));
  End(b, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  End(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_OK(d.cuStreamBeginCapture_v2(a, kThreadLocal));
  std::thread([&] {
    d.cuCtxSetCurrent(context);
    End(a, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  End(a, CUDA_ERROR_ILLEGAL_STATE);

  ASSERT_OK(d.cuStreamBeginCapture_v2(a, kRelaxed));
  std::thread([&] {
    d.cuCtxSetCurrent(context);
    End(a);
  }).join();
}

TEST_F(CaptureTest, TwoCapturesDoNotMix) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent mark = NewEvent();
  ASSERT_OK(d.cuStreamBeginCapture_v2(a, kRelaxed));
  ASSERT_OK(d.cuStreamBeginCapture_v2(b, kRelaxed));
  EXPECT_OK(d.cuEventRecord(mark, a));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_MERGE, d.cuStreamWaitEvent(b, mark, 0));
  End(b, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph graph = nullptr;
  d.cuStreamEndCapture(a, &graph);
}

TEST_F(CaptureTest, AnInvalidCaptureTakesNothing) {
  const CUstream s = NewStream();
  ASSERT_OK(d.cuStreamBeginCapture_v2(s, kRelaxed));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, d.cuStreamQuery(s));
  EXPECT_EQ(Status(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, d.cuMemsetD32Async(words, 1, 1, s));
  End(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, s));
  EXPECT_OK(d.cuStreamSynchronize(s));
}

TEST_F(CaptureTest, TellsAndChangesItsDependencies) {
  const CUstream s = NewStream();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 0;
  ASSERT_OK(d.cuStreamBeginCapture_v2(s, kGlobal));
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, s));
  EXPECT_OK(d.cuStreamGetCaptureInfo_v2(s, &status, &id, &graph, &dependencies, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1u);
  CUgraphNode first = dependencies[0];

  CUgraphNode mine = nullptr;
  EXPECT_OK(d.cuGraphAddEmptyNode(&mine, graph, nullptr, 0));
  EXPECT_OK(d.cuStreamUpdateCaptureDependencies(s, &mine, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  EXPECT_OK(d.cuStreamGetCaptureInfo_v2(s, &status, &id, &graph, &dependencies, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_OK(d.cuStreamUpdateCaptureDependencies(s, &first, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  EXPECT_OK(d.cuStreamGetCaptureInfo_v2(s, &status, &id, &graph, &dependencies, &count));
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(dependencies[0], first);
  EXPECT_EQ(Nodes(End(s)), 2u);
}

TEST_F(CaptureTest, ContinuesAGraph) {
  const CUstream s = NewStream();
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_OK(d.cuGraphCreate(&graph, 0));
  ASSERT_OK(d.cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  ASSERT_OK(d.cuStreamBeginCaptureToGraph(s, graph, &node, nullptr, 1, kGlobal));
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, s));
  EXPECT_EQ(End(s), graph);
  std::size_t edges = 0;
  EXPECT_OK(d.cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 1u);
}

TEST_F(CaptureTest, ExternalRecordsHappenWithTheGraph) {
  const CUstream s = NewStream();
  const CUevent mark = NewEvent();
  ASSERT_OK(d.cuStreamBeginCapture_v2(s, kGlobal));
  EXPECT_OK(d.cuEventRecordWithFlags(mark, s, CU_EVENT_RECORD_EXTERNAL));
  const CUgraph graph = End(s);
  EXPECT_EQ(Nodes(graph), 1u);
  CUgraphExec exec = nullptr;
  ASSERT_OK(d.cuGraphInstantiateWithFlags(&exec, graph, 0));
  Gate gate;
  gate.Hold(s);
  EXPECT_OK(d.cuGraphLaunch(exec, s));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuEventQuery(mark));
  gate.Open();
  EXPECT_OK(d.cuEventSynchronize(mark));
}

TEST_F(CaptureTest, MemoryOfAStreamBecomesMemoryOfTheGraph) {
  const CUstream s = NewStream();
  ASSERT_OK(d.cuStreamBeginCapture_v2(s, kGlobal));
  CUdeviceptr memory = 0;
  EXPECT_OK(d.cuMemAllocAsync(&memory, 4096, s));
  EXPECT_OK(d.cuMemsetD32Async(memory, 7, 1024, s));
  EXPECT_OK(d.cuMemcpyDtoDAsync_v2(words, memory, 4, s));
  EXPECT_OK(d.cuMemFreeAsync(memory, s));
  CUgraphExec exec = nullptr;
  const CUgraph graph = End(s);
  EXPECT_EQ(Nodes(graph), 4u);
  ASSERT_OK(d.cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) EXPECT_OK(d.cuGraphLaunch(exec, s));
  EXPECT_OK(d.cuStreamSynchronize(s));
  EXPECT_EQ(Word(words), 7u);
}

TEST_F(CaptureTest, DestroyingTheStreamEndsIt) {
  const CUstream s = NewStream();
  ASSERT_OK(d.cuStreamBeginCapture_v2(s, kGlobal));
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, s));
  EXPECT_OK(d.cuStreamDestroy_v2(s));
  EXPECT_OK(d.cuEventQuery(event));  // nothing is captured any more
}

}  // namespace
}  // namespace tessera::soft
