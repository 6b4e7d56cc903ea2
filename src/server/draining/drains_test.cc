#include "server/draining/drains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/testing/temporary_folder.h"
#include "server/control/drain_control.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DrainsTest : public testing::Test {
 protected:
  TestDaemon::Setup Gpus(unsigned count) const { return {.gpus = count, .run_dir = folder_.path()}; }

  static GpuReport Gpu(TestDaemon& daemon, std::size_t gpu) { return daemon.Api().Gpus()->at(gpu); }

  TemporaryFolder folder_;
};

TEST_F(DrainsTest, VGpusGoAndNoneComesUntilItIsUndrained) {
  TestDaemon daemon(Gpus(2));
  daemon.Make({.name = "a", .gpu = "0", .memory_request = "6G", .compute_request = "30"});
  DrainControl drains(daemon.Api());
  const auto dry = drains.Drain("0", true);
  ASSERT_TRUE(dry) << dry.error().Text();
  ASSERT_EQ(dry->migration.moves.size(), 1u);
  EXPECT_EQ(dry->migration.moves[0].to, 1u);
  EXPECT_FALSE(Gpu(daemon, 0).draining);
  ASSERT_TRUE(drains.Drain("0", false));
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").gpu == 1; }));
  EXPECT_TRUE(daemon.Eventually([&] { return Gpu(daemon, 0).drain->moving.empty(); }));
  EXPECT_THAT(Gpu(daemon, 0).drain->staying, IsEmpty());
  EXPECT_EQ(daemon.Api().Create({.name = "b", .gpu = "0"}).error().code, EBUSY);
  const auto large = daemon.Api().Create({.name = "b", .memory_request = "6G"});
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("GPU 0 drains"));
  ASSERT_TRUE(drains.Undrain("0"));
  EXPECT_EQ(daemon.Api().Create({.name = "b", .memory_request = "6G"})->gpu, 0u);
}

TEST_F(DrainsTest, ItLastsWhetherTheGpuIsThereOrNot) {
  {
    TestDaemon daemon(Gpus(2));
    ASSERT_TRUE(DrainControl(daemon.Api()).Drain("1", false));
  }
  {
    TestDaemon without(Gpus(1));
  }
  TestDaemon daemon(Gpus(2));
  EXPECT_FALSE(Gpu(daemon, 0).draining);
  EXPECT_TRUE(Gpu(daemon, 1).draining);
}

// Two at once: what goes to a GPU has its place there before it comes.
TEST_F(DrainsTest, NoPlaceIsGivenTwice) {
  TestDaemon daemon(Gpus(3));
  daemon.Make({.name = "a", .gpu = "0", .memory_request = "6G"});
  daemon.Make({.name = "b", .gpu = "1", .memory_request = "6G"});
  const auto plans = daemon.Loop().Call([&] {
    Drains& drains = daemon.Whole().Moves().drains;
    const Nanos now = MonotonicNow();
    return std::pair(drains.Begin(0, "", now), drains.Begin(1, "", now));
  });
  ASSERT_TRUE(plans);
  EXPECT_EQ(plans->first.moves.size(), 1u);
  ASSERT_EQ(plans->second.stays.size(), 1u);
  EXPECT_THAT(plans->second.stays[0].why, HasSubstr("GPU 2: memory.request 6 GiB does not fit"));
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").gpu == 2; }));
  EXPECT_EQ(daemon.Report("b").gpu, 1u);
  EXPECT_EQ(Gpu(daemon, 1).drain->staying.at(0).vgpu, "b");
}

TEST_F(DrainsTest, RoomIsMadeByMoves) {
  TestDaemon daemon(Gpus(2));
  for (const char* gpu : {"0", "1"}) daemon.Make({.name = std::string("on") + gpu, .gpu = gpu, .memory_request = "3G"});
  const VGpuRequest wish{.memory_request = "8G", .compute_request = "50"};
  DrainControl drains(daemon.Api());
  const auto made = drains.MakeRoom(wish, false);
  ASSERT_TRUE(made) << made.error().Text();
  EXPECT_EQ(made->migration.moves.size(), 1u);
  EXPECT_TRUE(daemon.Eventually([&] { return drains.MakeRoom(wish, true)->migration.moves.empty(); }));
  EXPECT_TRUE(daemon.Api().Create({.name = "new", .memory_request = "8G", .compute_request = "50"}));
  EXPECT_EQ(drains.MakeRoom(wish, false).error().code, ENOSPC);
}

TEST_F(DrainsTest, RoomIsMadeForANewVGpuWhereThatIsSet) {
  TestDaemon::Setup setup = Gpus(2);
  setup.config = *ParseConfig("rebalance.auto = true\n[quota.default]\nmemory = '8G'\n", "a");
  TestDaemon daemon(std::move(setup));
  for (const char* gpu : {"0", "1"})
    daemon.Make({.name = std::string("on") + gpu, .gpu = gpu, .memory_request = "3G", .compute_request = "30"});
  Control user = daemon.Api().For(4321, {});
  const auto at = [&] { return std::pair(daemon.Report("on0").gpu, daemon.Report("on1").gpu); };
  EXPECT_EQ(DrainControl(user).Create({.name = "large", .memory_request = "9G", .compute_request = "80"}).error().code,
            ENOSPC);
  EXPECT_EQ(at(), std::pair(0u, 1u)) << "beyond the quota";
  EXPECT_EQ(DrainControl(user).Create({.name = "there", .gpu = "0", .memory_request = "8G"}).error().code, ENOSPC);
  EXPECT_EQ(at(), std::pair(0u, 1u)) << "the user named a GPU";
  const auto made = DrainControl(user).Create({.name = "new", .memory_request = "8G"});
  ASSERT_TRUE(made) << made.error().Text();
  EXPECT_EQ(daemon.Report("on0").gpu, daemon.Report("on1").gpu);
  EXPECT_NE(made->gpu, daemon.Report("on0").gpu);
}

TEST_F(DrainsTest, IsForOperators) {
  TestDaemon daemon(Gpus(2));
  Control user = daemon.Api().For(4321, {});
  EXPECT_EQ(DrainControl(user).Drain("0", true).error().code, EPERM);
  EXPECT_EQ(DrainControl(user).Undrain("0").error().code, EPERM);
  EXPECT_EQ(DrainControl(user).MakeRoom({.memory_request = "1G"}, true).error().code, EPERM);
  EXPECT_EQ(DrainControl(daemon.Api()).Drain("7", false).error().code, ENOENT);
}

}  // namespace
}  // namespace tessera::server
