#include "cli/demo/demo_memory.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/size.h"

namespace tessera::cli {
using client::Json;

namespace {

TEST(HostMemoryNeeded, IsWhatTheGpuDoesNotHold) {
  const Json large = {{"memory_total_bytes", 140 * kGiB},
                      {"memory_reserve_bytes", 3 * kGiB},
                      {"memory_unmanaged_bytes", 0},
                      {"context_bytes", kGiB}};
  EXPECT_EQ(HostMemoryNeeded(large, 98 * kGiB), 63 * kGiB) << "196, 3 contexts, 3 kept back and 1 to spare";
  const Json small = {{"memory_total_bytes", kGiB}, {"context_bytes", 0}};
  EXPECT_EQ(HostMemoryNeeded(small, 700 * kMiB), 632 * kMiB);
  EXPECT_EQ(HostMemoryNeeded(small, 100 * kMiB), 0u);
}

}  // namespace
}  // namespace tessera::cli
