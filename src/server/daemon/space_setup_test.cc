#include "server/daemon/space_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "server/gpu/quota_keeper.h"
#include "server/testing/fake_driver.h"
#include "server/testing/fake_mps.h"

namespace tessera::server {
namespace {

class SpaceSetupTest : public FakeMpsTest {
 protected:
  void TearDown() override {
    End();
    FakeMpsTest::TearDown();
  }

  // The process that is steered for a space of the user whose control daemon names this server.
  pid_t Followed(uid_t user, pid_t server) {
    End();
    closed_ = false;
    Write("servers", std::to_string(server) + "\n");
    std::filesystem::create_directory(folder_.path() + "/a");
    const MpsPlace place = {.program = Program(),
                            .pipes = folder_.path() + "/a/pipe",
                            .logs = folder_.path() + "/a/log",
                            .user = {},
                            .gpu = "GPU-0"};
    On([&] {
      space_ = std::make_unique<Space>(*loop_, Space::Identity{.name = "a", .number = 1, .gpu = 0, .uid = user}, place,
                                       folder_.path() + "/a/daemon",
                                       Space::Host{.closed = [this](const Space&) { closed_ = true; }});
      EXPECT_TRUE(space_->Open());
    });
    WaitUntil([this] { return On([this] { return space_->Server(); }) != 0; });
    return On([this] {
      FollowServer(*space_, channels_, {}, 0);
      return channels_.Table().ServerOf(1);
    });
  }
  void End() {
    if (!space_) return;
    On([this] { space_->Close(); });
    WaitUntil([this] { return closed_.load(); });
    On([this] { space_.reset(); });
  }

  ChannelServer channels_{nullptr, "this is a test", nullptr};
  std::unique_ptr<Space> space_;
  std::atomic<bool> closed_ = false;
};

// The control daemon is the user's: it may name any process.
TEST_F(SpaceSetupTest, AServerIsFollowedIfItIsAProcessOfTheSpacesUser) {
  EXPECT_EQ(Followed(geteuid(), getpid()), getpid());
  EXPECT_EQ(Followed(geteuid() + 1, getpid()), 0);
  EXPECT_EQ(Followed(geteuid(), 600'000'000), 0) << "there is no such process";
}

// As a vGPU whose GPU is missing, it comes back with that.
TEST_F(SpaceSetupTest, ASpaceWhoseGpuIsMissingIsKept) {
  const SavedSpace kept = {.name = "kept", .gpu = FakeDriver::UuidOf(7), .uid = geteuid()};
  On([&] {
    SpaceTable spaces(*loop_, {.folder = folder_.path() + "/mps", .program = Program(), .why_none = ""},
                      [](const Space&) {});
    RestoreSpaces({kept}, spaces, {});
    EXPECT_FALSE(spaces.Any());
    ASSERT_EQ(LastingSpaces(spaces, {}).size(), 1u);
    EXPECT_EQ(LastingSpaces(spaces, {})[0].gpu, kept.gpu);
    EXPECT_EQ(spaces.OwnerOf("kept"), kept.uid);
    EXPECT_EQ(spaces.Enter("kept", kept.uid == 0 ? 1 : 0, 0, "GPU-0").error().code, EPERM);
    EXPECT_TRUE(spaces.Remove("kept"));
    EXPECT_TRUE(LastingSpaces(spaces, {}).empty());
    EXPECT_EQ(spaces.Remove("kept").error().code, ENOENT);
  });
}

// Each has an MPS server and its control daemon.
TEST(QuotaKeeper, AUserHasAsManySpacesThatLastAsVGpus) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop);
  VGpuTable::Gpus gpus;
  const VGpuTable table(**loop, gpus, [] {});
  const std::vector<Quota> quotas = {{.name = "default", .bounds = {.vgpus = 2}}};
  const QuotaKeeper keeper(quotas, table, gpus);
  const Caller user = {.role = Caller::Role::kUser, .uid = 1000, .groups = {}};
  EXPECT_TRUE(keeper.AdmitSpace(user, 1));
  const auto refused = keeper.AdmitSpace(user, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("spaces that last (as vgpus) of 2"));
  EXPECT_TRUE(keeper.AdmitSpace({.role = Caller::Role::kOperator, .uid = 0, .groups = {}}, 100));
}

}  // namespace
}  // namespace tessera::server
