#include "shim/gate/window.h"

#include <gtest/gtest.h>

namespace tessera::shim {
namespace {

constexpr Nanos kTarget = 2 * kMillisecond;

// A GPU with kernels of equal length and a program that always has more: each marker finds the whole window before it.
Nanos QueuedAfter(Window& window, Nanos kernel, int markers, Nanos& now) {
  for (int i = 0; i < markers; ++i) {
    const Nanos latency = window.Size() * kernel;
    window.OnMarker(now, latency, kTarget, true);
    now += latency;
  }
  return window.Size() * kernel;
}

class WindowOf : public testing::TestWithParam<Nanos> {};

TEST_P(WindowOf, QueuesAboutTheTarget) {
  Window window;
  Nanos now = kSecond;
  const Nanos queued = QueuedAfter(window, GetParam(), 200, now);
  EXPECT_LE(queued, kTarget + kTarget / 4);
  EXPECT_GE(queued, kTarget / 3);
}
INSTANTIATE_TEST_SUITE_P(KernelLengths, WindowOf,
                         testing::Values(5 * kMicrosecond, 20 * kMicrosecond, 100 * kMicrosecond, 500 * kMicrosecond));

TEST(Window, LongKernelsKeepTwoInFlight) {
  Window window;
  Nanos now = kSecond;
  QueuedAfter(window, 10 * kMillisecond, 50, now);
  EXPECT_EQ(window.Size(), Window::kSmallest);
}

// Kernels that were short read host memory now: what is queued for them before the first marker tells is bounded.
TEST(Window, BeginsAnewWithLittle) {
  Window window;
  Nanos now = kSecond;
  QueuedAfter(window, 10 * kMicrosecond, 200, now);
  ASSERT_GT(window.Size(), 100);
  window.Restart();
  EXPECT_EQ(window.Size(), Window::kSmallest);
  EXPECT_GE(QueuedAfter(window, 100 * kMicrosecond, 50, now), kTarget / 3);
}

TEST(Window, OneDecreaseForOneQueue) {
  Window window;
  window.OnMarker(100, 5 * kMillisecond, kTarget, true);
  const auto size = window.Size();
  window.OnMarker(200, 5 * kMillisecond, kTarget, true);  // was queued before the decrease took effect
  EXPECT_EQ(window.Size(), size);
}

TEST(Window, GrowsOnlyWhereItLimits) {
  Window window;
  const auto size = window.Size();
  for (int i = 0; i < 100; ++i) window.OnMarker(i, 1, kTarget, false);
  EXPECT_EQ(window.Size(), size);
}

TEST(Window, AdaptsWhenKernelsGrow) {
  Window window;
  Nanos now = kSecond;
  QueuedAfter(window, 5 * kMicrosecond, 100, now);
  EXPECT_GT(window.Size(), 100);
  EXPECT_LE(QueuedAfter(window, 200 * kMicrosecond, 100, now), kTarget + kTarget / 4);
}

}  // namespace
}  // namespace tessera::shim
