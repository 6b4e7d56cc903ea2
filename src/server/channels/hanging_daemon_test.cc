// A daemon that does not answer for a while, whose watchdog thaws meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "base/testing/wait_until.h"
#include "server/channels/channel_server.h"
#include "server/model/shared_page.h"
#include "server/testing/fake_control.h"

namespace tessera::server {
namespace {

namespace abi = channel::abi;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = channel::ObjectEvent::Kind;
using Source = ChannelServer::Source;

// It says across processes that it has thawed something.
class WatchdogsControl : public FakeControl {
 public:
  explicit WatchdogsControl(std::atomic<bool>& thawed) : thawed_(thawed) {}
  Result<void> Thaw(std::uint32_t, std::span<const channel::Target>, channel::Reach) override {
    thawed_ = true;
    return {};
  }

 private:
  std::atomic<bool>& thawed_;
};

// A daemon whose watchdog finds that it hangs whenever it says nothing for 5 ms.
class HangingDaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    void* shared = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    thawed_ = new (shared) std::atomic<bool>();
    auto watchdog = channel::Watchdog::Start(
        [this]() -> Result<std::unique_ptr<channel::Control>> { return std::make_unique<WatchdogsControl>(*thawed_); },
        5 * kMillisecond);
    ASSERT_TRUE(watchdog) << watchdog.error().Text();
    watchdog_ = std::move(*watchdog);
    auto control = std::make_unique<FakeControl>();
    control_ = control.get();
    channels_.emplace(std::move(control), "", watchdog_.get());
  }
  // As a program does whose client is `client`: channel 10.
  void MakeChannel(pid_t pid, std::uint32_t client) {
    const auto made = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
      channels_->Observe(pid, {Kind::kAlloc, 5, client, parent, object, cls, detail}, Source::kGuard, 0);
    };
    made(0, client, abi::kRootClient, 0);
    made(client, 2, abi::kDevice, 0);
    made(2, 3, abi::kChannelGroup, abi::kEngineGraphics);
    made(3, 10, abi::kAnyChannel, 0);
  }
  void Hang() {
    WaitUntil([this] { return thawed_->load(); });
  }

  std::atomic<bool>* thawed_ = nullptr;
  std::unique_ptr<channel::Watchdog> watchdog_;
  FakeControl* control_ = nullptr;
  std::optional<ChannelServer> channels_;
};

// It is frozen by policy, this daemon hangs, the watchdog thaws, an operator freezes before anybody looked.
TEST_F(HangingDaemonTest, AnOperatorsFreezeTakesNoFreezeForDoneThatTheWatchdogUndid) {
  const pid_t pid = getpid();
  MakeChannel(pid, 1);
  ASSERT_TRUE(channels_->Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  Hang();
  control_->frozen.clear();  // which the watchdog did
  ASSERT_TRUE(channels_->Freezer().Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_FALSE(control_->twice);
  channels_->Forget(pid);
}

TEST_F(HangingDaemonTest, WhomTheWatchdogLeftInTheMiddleOfAMoveIsNotThawedAfterwardsEither) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const pid_t pids[] = {getpid(), child};  // two that live
  auto page = SharedPage::Create(0);
  ASSERT_TRUE(page);
  (*page)->guard.unsafe = 1;
  channels_->Freezer().HeedMoveGuard(pids[1], 0, page->Fd(), offsetof(wire::Page, guard));
  MakeChannel(pids[0], 1);
  MakeChannel(pids[1], 8);
  ASSERT_TRUE(channels_->Freezer().Freeze(0, pids, FreezeReason::kMove));
  Hang();
  control_->frozen.erase({1, 10});  // which the watchdog did
  channels_->Freezer().Beat();
  EXPECT_THAT(control_->frozen, SizeIs(2));
  EXPECT_FALSE(control_->thawed.contains(pids[1]));
  EXPECT_FALSE(control_->twice);
  (*page)->guard.unsafe = 0;
  ASSERT_TRUE(channels_->Freezer().Thaw(0, pids, FreezeReason::kMove));
  EXPECT_THAT(control_->frozen, IsEmpty());
  for (const pid_t pid : pids) channels_->Forget(pid);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tessera::server
