#include "server/model/gate_counts.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(GateCounts, EachDeviceIsChargedWhereItsFirstBytesWere) {
  GateCounts counts;
  EXPECT_EQ(counts.GpuOf(1, 3), std::nullopt);
  EXPECT_EQ(counts.On(1, 0), std::nullopt);
  counts.Add(1, 3, 0, 10);
  counts.Add(1, 7, 1, 20);
  counts.Add(1, 3, 1, 5);  // its vGPUs changed meanwhile
  counts.Add(1, UINT32_MAX, 0, 100);
  counts.Add(2, 3, 1, 1000);
  EXPECT_EQ(counts.GpuOf(1, 3), 0u);
  EXPECT_EQ(counts.GpuOf(1, 7), 1u);
  EXPECT_EQ(counts.On(1, 0), 115u);
  EXPECT_EQ(counts.On(1, 1), 20u);
  EXPECT_EQ(counts.On(2, 0), std::nullopt);
  counts.Take(1, 3, 15);
  counts.Take(1, 7, 21);  // never below nothing
  EXPECT_EQ(counts.On(1, 0), 100u);
  EXPECT_EQ(counts.On(1, 1), 0u);  // it was there, which is not the same as never
  counts.Forget(1);
  counts.Take(1, UINT32_MAX, 100);
  EXPECT_EQ(counts.On(1, 0), std::nullopt);
  EXPECT_EQ(counts.On(2, 1), 1000u);
}

}  // namespace
}  // namespace tessera::server
