#include "shim/order/legacy_order.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "shim/gate/capture.h"
#include "shim/testing/ordered_streams.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using namespace cuda;
using Use = LegacyOrder::Use;

constexpr pid_t kOne = 1, kTwo = 2;

class LegacyOrderTest : public ShimFixture {
 protected:
  LegacyOrderTest() : ShimFixture(false) {}
  ~LegacyOrderTest() override {
    order.EndAll();
    EXPECT_FALSE(LegacyOrder::Any());
    EXPECT_FALSE(sees_each);
    EXPECT_TRUE(streams.events.empty());
  }

  CUstream Make() {
    CUstream stream = nullptr;
    EXPECT_EQ(order.MakeStream(&stream,
                               [&] {
                                 EXPECT_TRUE(LegacyOrder::Any());
                                 EXPECT_TRUE(sees_each) << "before there is a stream that needs it";
                                 stream = Cuda().MakeStream();
                                 return CUDA_SUCCESS;
                               }),
              CUDA_SUCCESS);
    return stream;
  }
  void Ask(CUstream stream, pid_t thread = kOne, Use use = Use::kWork) {
    EXPECT_EQ(order.Before(stream, use, thread), CUDA_SUCCESS);
  }
  // A call that gives the stream work, and returns. What comes before that, and it.
  OrderedStreams::Clock Work(CUstream stream, pid_t thread = kOne) {
    Ask(stream, thread);
    return streams.Work(stream);
  }

  static inline bool sees_each;
  OrderedStreams streams;
  LegacyOrder order{[](bool each) { sees_each = each; }};
};

TEST_F(LegacyOrderTest, TheLegacyStreamWaitsForBlockingStreams) {
  const CUstream a = Make(), b = Make();
  Work(a);
  Work(b);
  auto before = Work(CU_STREAM_LEGACY);
  EXPECT_EQ(before[a], 1u);
  EXPECT_EQ(before[b], 1u);
}

TEST_F(LegacyOrderTest, BlockingStreamsWaitForTheLegacyStream) {
  const CUstream a = Make(), b = Make();
  Work(CU_STREAM_LEGACY);
  EXPECT_EQ(Work(a)[CU_STREAM_LEGACY], 1u);
  EXPECT_EQ(Work(b)[CU_STREAM_LEGACY], 1u);
}

TEST_F(LegacyOrderTest, BlockingStreamsDoNotWaitForOneAnother) {
  const CUstream a = Make(), b = Make();
  Work(a);
  EXPECT_EQ(Work(b)[a], 0u);
  Work(CU_STREAM_LEGACY);
  EXPECT_EQ(Work(b)[a], 1u) << "through the legacy stream";
}

TEST_F(LegacyOrderTest, WorkOfBeforeTheFirstBlockingStreamIsWaitedForToo) {
  streams.Work(CU_STREAM_LEGACY);
  EXPECT_EQ(Work(Make())[CU_STREAM_LEGACY], 1u);
}

TEST_F(LegacyOrderTest, OtherStreamsAreLeftAlone) {
  const CUstream a = Make(), other = Cuda().MakeStream();
  Work(CU_STREAM_LEGACY);
  Work(other);
  Work(CU_STREAM_PER_THREAD);
  Work(CU_STREAM_LEGACY);
  EXPECT_EQ(streams.joins, 0);
  EXPECT_TRUE(order.Has(a));
  EXPECT_FALSE(order.Has(other));
}

TEST_F(LegacyOrderTest, WhatIsInOrderIsNotJoinedAgain) {
  const CUstream a = Make();
  Work(a);
  Work(CU_STREAM_LEGACY);
  const int joins = streams.joins;
  for (int i = 0; i < 3; ++i) Work(CU_STREAM_LEGACY);
  EXPECT_EQ(streams.joins, joins);
  for (int i = 0; i < 3; ++i) Work(a);
  EXPECT_EQ(streams.joins, joins + 1);
  EXPECT_EQ(streams.events.size(), 1u) << "one a stream";
}

TEST_F(LegacyOrderTest, ACallOnItsWayIsJoinedAgainWhenItHasReturned) {
  const CUstream a = Make();
  Ask(a, kOne);
  Work(CU_STREAM_LEGACY, kTwo);
  streams.Work(a);
  EXPECT_EQ(Work(CU_STREAM_LEGACY, kTwo)[a], 1u);
  Ask(Cuda().MakeStream(), kOne);  // now it is known to have returned
  Work(CU_STREAM_LEGACY, kTwo);
  const int joins = streams.joins;
  Work(CU_STREAM_LEGACY, kTwo);
  EXPECT_EQ(streams.joins, joins);
}

TEST_F(LegacyOrderTest, ACallOnItsWayToTheLegacyStreamToo) {
  const CUstream a = Make();
  Ask(CU_STREAM_LEGACY, kOne);
  Work(a, kTwo);
  streams.Work(CU_STREAM_LEGACY);
  EXPECT_EQ(Work(a, kTwo)[CU_STREAM_LEGACY], 1u);
}

TEST_F(LegacyOrderTest, ThreadsThatHaveEndedAreForgotten) {
  const CUstream a = Make();
  const auto each_by_a_thread = [&](CUstream stream) {
    for (int i = 0; i < 80; ++i) std::thread([&] { EXPECT_EQ(order.Before(stream, Use::kWork), CUDA_SUCCESS); }).join();
  };
  each_by_a_thread(a);
  const int joins = streams.joins;
  for (int i = 0; i < 3; ++i) Work(CU_STREAM_LEGACY);
  EXPECT_EQ(streams.joins, joins + 3) << "for all that is known, a call is on its way";
  each_by_a_thread(CU_STREAM_LEGACY);
  Work(CU_STREAM_LEGACY);
  const int later = streams.joins;
  for (int i = 0; i < 3; ++i) Work(CU_STREAM_LEGACY);
  EXPECT_EQ(streams.joins, later);
}

TEST_F(LegacyOrderTest, AWaitForAStreamIsNoWork) {
  const CUstream a = Make();
  Work(a);
  Ask(CU_STREAM_LEGACY, kOne, Use::kWait);
  EXPECT_EQ(streams.Before(CU_STREAM_LEGACY)[a], 1u);
  Work(a);
  const int joins = streams.joins;
  Ask(a, kOne, Use::kWait);
  EXPECT_EQ(streams.joins, joins);
}

TEST_F(LegacyOrderTest, AQuestionGivesNoStreamAnything) {
  const CUstream a = Make();
  Work(CU_STREAM_LEGACY);
  streams.busy = {CU_STREAM_LEGACY};
  EXPECT_EQ(order.Query(a), CUDA_ERROR_NOT_READY);
  streams.busy = {};
  EXPECT_EQ(order.Query(a), CUDA_SUCCESS);
  Work(a);
  streams.busy = {a};
  EXPECT_EQ(order.Query(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(order.Query(Cuda().MakeStream()), CUDA_SUCCESS);
  Work(CU_STREAM_LEGACY);
  const int joins = streams.joins;
  EXPECT_EQ(order.Query(CU_STREAM_LEGACY), CUDA_SUCCESS) << "the driver itself knows of the wait";
  EXPECT_EQ(streams.joins, joins);
}

TEST_F(LegacyOrderTest, AStreamThatCapturesIsLeftOut) {
  const CUstream a = Make(), b = Make();
  Work(a);
  Work(b);
  AddCapture(a, nullptr);
  streams.capturing = {a};
  auto before = Work(CU_STREAM_LEGACY);
  EXPECT_EQ(before[a], 0u);
  EXPECT_EQ(before[b], 1u);
  Ask(a);
  streams.capturing = {};
  RemoveCapture(a);
  EXPECT_EQ(Work(CU_STREAM_LEGACY)[a], 1u);
}

TEST_F(LegacyOrderTest, TheWorkOfADestroyedStreamIsWaitedFor) {
  const CUstream a = Make(), b = Make();
  Work(a);
  order.EndStream(a);
  EXPECT_FALSE(order.Has(a));
  EXPECT_EQ(Work(CU_STREAM_LEGACY)[a], 1u);
  order.EndStream(Cuda().MakeStream());
  EXPECT_TRUE(sees_each);
  order.EndStream(b);
  EXPECT_FALSE(sees_each);
  EXPECT_FALSE(LegacyOrder::Any());
}

TEST_F(LegacyOrderTest, AStreamThatCannotBeMadeChangesNothing) {
  CUstream stream = nullptr;
  EXPECT_EQ(order.MakeStream(&stream, [] { return CUDA_ERROR_OUT_OF_MEMORY; }), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(sees_each);
  EXPECT_FALSE(LegacyOrder::Any());
}

TEST_F(LegacyOrderTest, AnErrorIsTheCallers) {
  const CUstream a = Make();
  Work(a);
  streams.answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(order.Before(CU_STREAM_LEGACY, Use::kWork, kOne), CUDA_ERROR_ILLEGAL_ADDRESS);
  streams.answer = CUDA_SUCCESS;
  EXPECT_EQ(Work(CU_STREAM_LEGACY)[a], 1u);
}

TEST_F(LegacyOrderTest, ThreadsMayAskAndMakeStreamsAtOnce) {
  const CUstream shared = Make();
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 0x100; t < 0x500; t += 0x100)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        CUstream own = nullptr;
        EXPECT_EQ(order.MakeStream(&own, [&] { return own = reinterpret_cast<CUstream>(t), CUDA_SUCCESS; }),
                  CUDA_SUCCESS);
        for (const CUstream stream : {own, CU_STREAM_LEGACY, shared})
          EXPECT_EQ(order.Before(stream, Use::kWork), CUDA_SUCCESS);
        EXPECT_EQ(order.Query(own), CUDA_SUCCESS);
        EXPECT_TRUE(order.Has(own));
        order.EndStream(own);
        EXPECT_TRUE(LegacyOrder::Any());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(streams.events.size(), 1u);
}

}  // namespace
}  // namespace tessera::shim
