#include "soft/shared/visible_devices.h"

#include <gtest/gtest.h>

namespace tessera::soft {
namespace {

TEST(VisibleDevices, ByIndexAndUuid) {
  const std::vector<std::string> uuids = {"GPU-aa00", "GPU-bb11", "GPU-bb22"};
  EXPECT_EQ(VisibleDevices(nullptr, uuids), (std::vector{0, 1, 2}));
  EXPECT_EQ(VisibleDevices("", uuids), std::vector<int>{});
  EXPECT_EQ(VisibleDevices("2,0", uuids), (std::vector{2, 0}));
  EXPECT_EQ(VisibleDevices("GPU-bb2,GPU-aa", uuids), (std::vector{2, 0}));
  EXPECT_EQ(VisibleDevices("1,-1,0", uuids), std::vector{1});
  EXPECT_EQ(VisibleDevices("1,7,0", uuids), std::vector{1});
  EXPECT_EQ(VisibleDevices("0,0", uuids), std::vector<int>{});
}

}  // namespace
}  // namespace tessera::soft
