#include "shim/gate/end_watch.h"

#include "shim/gate/capture.h"
#include "shim/testing/held_waits.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

class EndWatchTest : public ShimFixture {
 protected:
  EndWatchTest() : ShimFixture(false) {}

  HeldWaits waits{Cuda()};
  EndWatch& watch = Kept(new EndWatch);
  const cuda::CUcontext context = Cuda().MakeContext(device);
};

TEST_F(EndWatchTest, TheAnswerComesWhenTheWorkHasEnded) {
  EXPECT_FALSE(watch.Pending());
  EXPECT_FALSE(watch.Ended(0)) << "nobody has asked";
  watch.Ask(context, 3);
  EXPECT_EQ(waits.Await(1), context);
  EXPECT_TRUE(watch.Pending());
  EXPECT_FALSE(watch.Ended(3));
  waits.Let(1);
  watch.Await();
  EXPECT_FALSE(watch.Pending());
  EXPECT_TRUE(watch.Ended(3));
  EXPECT_FALSE(watch.Ended(4)) << "one came later";
}

TEST_F(EndWatchTest, WhileAStreamCapturesItDoesNotWait) {
  AddCapture(cuda::CU_STREAM_PER_THREAD, context);
  watch.Ask(context, 1);
  watch.Await();
  EXPECT_FALSE(watch.Ended(1));
  EXPECT_EQ(waits.Begun(), 0);
  RemoveCapture(cuda::CU_STREAM_PER_THREAD);
  waits.Let(1);
  watch.Ask(context, 1);
  watch.Await();
  EXPECT_TRUE(watch.Ended(1));
}

TEST_F(EndWatchTest, ACaptureThatTheDriverFoundMakesTheEndUnknown) {
  waits.Answer(cuda::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  waits.Let(1);
  watch.Ask(context, 1);
  watch.Await();
  EXPECT_FALSE(watch.Ended(1));
}

TEST_F(EndWatchTest, ACaptureBeginsThoughAWaitIsUnderWay) {
  watch.Ask(context, 1);
  waits.Await(1);
  watch.Settle();
  waits.Let(1);
  watch.Await();
  EXPECT_TRUE(watch.Ended(1));
}

TEST_F(EndWatchTest, AQuestionWhileTheFirstOneWaitsIsAnsweredAfterIt) {
  watch.Ask(context, 1);
  waits.Await(1);
  watch.Ask(context, 2);
  waits.Let(1);
  waits.Await(2);
  EXPECT_TRUE(watch.Pending());
  EXPECT_FALSE(watch.Ended(1)) << "the last question is about two";
  EXPECT_FALSE(watch.Ended(2));
  waits.Let(2);
  watch.Await();
  EXPECT_TRUE(watch.Ended(2));
}

TEST_F(EndWatchTest, AContextThatFailedHasNoWork) {
  waits.Answer(cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
  waits.Let(1);
  watch.Ask(context, 1);
  watch.Await();
  EXPECT_TRUE(watch.Ended(1));
}

TEST_F(EndWatchTest, AWaitForAContextThatIsGoneTellsNothingOfTheNext) {
  watch.Ask(context, 1);
  waits.Await(1);
  watch.Reset();
  waits.Let(1);
  watch.Await();
  EXPECT_FALSE(watch.Ended(1));
  const cuda::CUcontext next = Cuda().MakeContext(device);
  watch.Ask(next, 1);
  EXPECT_EQ(waits.Await(2), next);
  waits.Let(2);
  watch.Await();
  EXPECT_TRUE(watch.Ended(1));
  watch.Reset();
  watch.Await();
  EXPECT_FALSE(watch.Ended(1));
}

TEST_F(EndWatchTest, AtTheProcessEndNoWaitBeginsAndALongOneGoesOn) {
  watch.Ask(context, 1);
  waits.Await(1);
  watch.Stop();
  watch.Ask(context, 2);
  waits.Let(2);
  watch.Await();
  EXPECT_FALSE(watch.Ended(2));
  EXPECT_EQ(waits.Begun(), 1);
}

}  // namespace
}  // namespace tessera::shim
