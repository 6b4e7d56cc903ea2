#include "server/loop/event_loop.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(Deferred, WorkIsDoneOnceAfterTheEventsThatMadeItDue) {
  auto loop = EventLoop::Create().value();
  int done = 0;
  bool in_event = false;
  EventLoop::Deferred work(*loop, [&] {
    EXPECT_FALSE(in_event);
    ++done;
  });
  EventLoop::Timer event(*loop, [&] {
    in_event = true;
    work.MarkDue();
    work.MarkDue();
    in_event = false;
  });
  EventLoop::Timer last(*loop, [&] { loop->Stop(); });
  event.Arm(MonotonicNow());
  last.Arm(MonotonicNow() + kMillisecond);
  EXPECT_TRUE(loop->Run());
  EXPECT_EQ(done, 1);
}

TEST(Deferred, WorkThatMakesItselfDueIsDoneAgain) {
  auto loop = EventLoop::Create().value();
  int done = 0;
  EventLoop::Deferred work(*loop, [&] {
    if (++done == 3) return loop->Stop();
    work.MarkDue();
  });
  work.MarkDue();
  EXPECT_TRUE(loop->Run());
  EXPECT_EQ(done, 3);
}

}  // namespace
}  // namespace tessera::server
