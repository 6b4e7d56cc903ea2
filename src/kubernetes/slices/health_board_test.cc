#include "kubernetes/slices/health_board.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::kubernetes {
namespace {

using State = DeviceHealth::State;
using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};

TEST(HealthBoard, WakesWhoWaitsForNews) {
  HealthBoard board;
  EXPECT_EQ(board.WaitNewer(0, milliseconds(0)).version, 0u) << "there is none yet";
  std::thread later([&] { board.Set({{"gpu-1", State::kHealthy, ""}}); });
  const HealthBoard::Seen seen = board.WaitNewer(0, kLong);
  later.join();
  ASSERT_EQ(seen.devices.size(), 1u);
  EXPECT_EQ(seen.devices[0].state, State::kHealthy);
  board.Set(seen.devices);
  EXPECT_EQ(board.WaitNewer(seen.version, milliseconds(0)).version, seen.version) << "the same is no news";
}

TEST(HealthBoard, NobodyKnowsWhenTesseradIsSilent) {
  HealthBoard board;
  board.Set({{"gpu-1", State::kHealthy, ""}, {"gpu-2", State::kUnhealthy, "lost"}});
  board.SetUnknown("no daemon answers");
  const HealthBoard::Seen seen = board.WaitNewer(1, kLong);
  ASSERT_EQ(seen.devices.size(), 2u);
  for (const DeviceHealth& device : seen.devices) {
    EXPECT_EQ(device.state, State::kUnknown);
    EXPECT_EQ(device.message, "no daemon answers");
  }
}

}  // namespace
}  // namespace tessera::kubernetes
