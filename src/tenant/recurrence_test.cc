#include "tenant/recurrence.h"

#include <gtest/gtest.h>

namespace tessera::tenant {
namespace {

TEST(Recurrence, JumpsToWhereSingleStepsArrive) {
  std::uint32_t x = 42;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    EXPECT_EQ(Steps(n)(42), x) << n;
    x = x * 1664525u + 1013904223u;
  }
}

TEST(Recurrence, LaunchesAddUp) {
  const std::uint64_t iterations = 400'000, launches = 123'456;
  EXPECT_EQ(Steps(iterations * launches)(7), Compose(Steps(iterations * (launches - 1)), Steps(iterations))(7));
}

TEST(Recurrence, OneLaunchMoreOrFewerShows) {
  const std::uint32_t right = Steps(5'000'000)(1);
  EXPECT_NE(Steps(5'000'000 - 1000)(1), right);
  EXPECT_NE(Steps(5'000'000 + 1000)(1), right);
}

}  // namespace
}  // namespace tessera::tenant
