// A daemon that does not answer for a while, whose watchdog thaws meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "base/testing/bystander.h"
#include "base/testing/wait_until.h"
#include "server/channels/channel_server.h"
#include "server/model/shared_page.h"
#include "server/testing/context_events.h"
#include "server/testing/fake_control.h"

namespace tessera::server {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

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
  void MakeChannel(pid_t pid, std::uint32_t client) {
    for (const auto& event : ContextEvents(client)) channels_->Observe(pid, event, ChannelServer::Source::kGuard, 0);
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
  const Bystander other;
  const pid_t pids[] = {getpid(), other.Pid()};  // two that live
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
}

}  // namespace
}  // namespace tessera::server
