#include "server/daemon/space_setup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

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
    std::filesystem::create_directory(folder_ + "/a");
    const MpsPlace place = {
        .program = Program(), .pipes = folder_ + "/a/pipe", .logs = folder_ + "/a/log", .user = {}, .gpu = "GPU-0"};
    On([&] {
      space_ = std::make_unique<Space>(*loop_, Space::Identity{.name = "a", .number = 1, .gpu = 0, .uid = user}, place,
                                       folder_ + "/a/daemon",
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

}  // namespace
}  // namespace tessera::server
