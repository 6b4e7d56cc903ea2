#include "channel/control/freeze_account.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "channel/control/nvidia_control.h"
#include "channel/testing/fake_rm.h"

namespace tessera::channel {
namespace {

constexpr GpuUuid kUuid = {1, 2, 3};
constexpr std::uint32_t kCopy = 0xb;

// One GPU of a resource manager that counts disables, and processes with channels that compute and copy.
class FreezeAccountTest : public testing::Test {
 protected:
  void SetUp() override {
    auto control = OpenNvidiaControl({kUuid}, rm_.System());
    ASSERT_TRUE(control) << control.error().Text();
    control_ = std::move(*control);
    account_.emplace(*control_, [this](bool freeze, Nanos, Nanos) { ++(freeze ? freezes_ : thaws_); });
  }

  Target Tenant(int pid) {
    const std::uint32_t client = ClientOf(pid);
    return {.pid = pid,
            .process_fd = pid,
            .groups = {rm_.MakeGroup(pid, 5, client, 3, abi::kEngineGraphics, 0, {10, 11}),
                       rm_.MakeGroup(pid, 5, client, 4, kCopy, 0, {20})}};
  }
  static std::uint32_t ClientOf(int pid) { return static_cast<std::uint32_t>(0x1000 * pid); }
  bool ComputeIsOff(int pid) const { return rm_.IsFrozen(ClientOf(pid), 10) && rm_.IsFrozen(ClientOf(pid), 11); }
  bool CopiesAreOff(int pid) const { return rm_.IsFrozen(ClientOf(pid), 20); }
  bool Runs(int pid) const {
    return !rm_.IsFrozen(ClientOf(pid), 10) && !rm_.IsFrozen(ClientOf(pid), 11) && !CopiesAreOff(pid);
  }

  FreezeAccount::Outcome Settle(const Target& target, std::optional<Reach> reach) {
    const FreezeAccount::Wish wish{target, reach};
    return account_->Settle(0, {&wish, 1}).front();
  }

  FakeRm rm_{{{.id = 0x100, .device = 0, .subdevice = 0, .uuid = kUuid}}};
  std::unique_ptr<Control> control_;
  std::optional<FreezeAccount> account_;
  int freezes_ = 0, thaws_ = 0;
};

TEST_F(FreezeAccountTest, NoChannelIsTakenOffTwice) {
  const Target tenant = Tenant(1);
  EXPECT_TRUE(Settle(tenant, Reach::kCompute).froze);
  EXPECT_TRUE(ComputeIsOff(1));
  EXPECT_FALSE(CopiesAreOff(1));
  EXPECT_TRUE(Settle(tenant, Reach::kAll).froze);
  EXPECT_TRUE(CopiesAreOff(1));
  EXPECT_FALSE(Settle(tenant, Reach::kAll).froze) << "nothing was left to do";
  EXPECT_EQ(rm_.disable_calls(), (std::vector<std::uint32_t>{2, 1}));
  EXPECT_TRUE(Settle(tenant, {}).done);
  EXPECT_TRUE(Runs(1)) << "RM counts: a channel that was taken off twice would still be off";
  EXPECT_FALSE(account_->AnyOff(1, 0));
}

TEST_F(FreezeAccountTest, AReachThatShrinksPutsTheCopiesBack) {
  const Target tenant = Tenant(1);
  Settle(tenant, Reach::kAll);
  EXPECT_FALSE(Settle(tenant, Reach::kCompute).froze);
  EXPECT_TRUE(ComputeIsOff(1));
  EXPECT_FALSE(CopiesAreOff(1));
}

TEST_F(FreezeAccountTest, SeveralProcessesCostOneCall) {
  const std::vector<FreezeAccount::Wish> wishes = {
      {Tenant(1), Reach::kAll}, {Tenant(2), Reach::kCompute}, {Tenant(3), {}}};
  for (const auto& outcome : account_->Settle(0, wishes)) EXPECT_TRUE(outcome.done);
  EXPECT_EQ(freezes_, 1);
  EXPECT_EQ(thaws_, 0);
  EXPECT_TRUE(ComputeIsOff(1) && CopiesAreOff(1) && ComputeIsOff(2) && !CopiesAreOff(2) && Runs(3));
}

TEST_F(FreezeAccountTest, OneThatCannotBeFrozenDoesNotKeepOthersRunning) {
  const std::vector<FreezeAccount::Wish> wishes = {{Tenant(1), Reach::kAll}, {Tenant(2), Reach::kAll}};
  rm_.Break(ClientOf(1), 11, abi::kNotSupported);
  const auto outcomes = account_->Settle(0, wishes);
  EXPECT_FALSE(outcomes[0].done);
  EXPECT_FALSE(outcomes[0].froze);
  EXPECT_TRUE(outcomes[1].done);
  EXPECT_TRUE(outcomes[1].froze);
  EXPECT_TRUE(Runs(1)) << "a part of it must not stay off, which nobody would put back";
  EXPECT_FALSE(account_->AnyOff(1, 0));
  EXPECT_TRUE(ComputeIsOff(2));
  rm_.Break(ClientOf(1), 11, abi::kOk);
  EXPECT_TRUE(Settle(wishes[0].target, Reach::kAll).done);
  Settle(wishes[0].target, {});
  EXPECT_TRUE(Runs(1));
}

TEST_F(FreezeAccountTest, AThawThatFailedIsDoneTheNextTime) {
  const Target tenant = Tenant(1);
  Settle(tenant, Reach::kAll);
  rm_.Break(ClientOf(1), 10, abi::kNotSupported);
  EXPECT_FALSE(Settle(tenant, {}).done);
  EXPECT_TRUE(account_->AnyOff(1, 0));
  rm_.Break(ClientOf(1), 10, abi::kOk);
  EXPECT_TRUE(Settle(tenant, {}).done);
  EXPECT_TRUE(Runs(1));
}

TEST_F(FreezeAccountTest, ChannelsOfAnEarlierDaemonAreNotTakenOffAgain) {
  const Target tenant = Tenant(1);
  ASSERT_TRUE(control_->Freeze(0, {&tenant, 1}, Reach::kAll));
  account_->TakeOver(0, tenant);
  EXPECT_FALSE(Settle(tenant, Reach::kAll).froze);
  Settle(tenant, {});
  EXPECT_TRUE(Runs(1));
}

TEST_F(FreezeAccountTest, ChannelsThatMayBeOffArePutBackTwice) {
  const Target frozen = Tenant(1), ran = Tenant(2);
  ASSERT_TRUE(control_->Freeze(0, {&frozen, 1}, Reach::kAll));  // by a daemon before
  for (const Target& target : {frozen, ran}) {
    account_->MayBeOff(0, target);
    EXPECT_TRUE(Settle(target, Reach::kAll).froze);
    Settle(target, {});
    EXPECT_TRUE(Runs(target.pid));
  }
  thaws_ = 0;
  Settle(frozen, Reach::kAll);
  Settle(frozen, {});
  EXPECT_EQ(control_->Counts().thaws, 5u) << "only the first time twice";
}

TEST_F(FreezeAccountTest, AHandleThatCameBackIsAnotherChannel) {
  Target tenant = Tenant(1);
  Settle(tenant, Reach::kAll);
  rm_.FreeChannel(ClientOf(1), 11);
  Target left = tenant;
  left.groups[0].channels = {10};
  account_->KeepOnly(1, 0, left.groups);
  tenant.groups[0] = rm_.MakeGroup(1, 5, ClientOf(1), 3, abi::kEngineGraphics, 0, {11});
  tenant.groups[0].channels = {10, 11};
  EXPECT_TRUE(Settle(tenant, Reach::kAll).froze);
  EXPECT_TRUE(rm_.IsFrozen(ClientOf(1), 11));
}

TEST_F(FreezeAccountTest, WhatSomebodyElseThawedInPartIsFrozenOnceMore) {
  const Target tenant = Tenant(1);
  Settle(tenant, Reach::kAll);
  Target part = tenant;
  part.groups.pop_back();
  ASSERT_TRUE(control_->Thaw(0, {&part, 1}, Reach::kAll));  // as the watchdog does
  account_->Undone(0, tenant);
  EXPECT_TRUE(Runs(1));
  EXPECT_TRUE(Settle(tenant, Reach::kAll).froze);
  Settle(tenant, {});
  EXPECT_TRUE(Runs(1));
}

// Finds the channels of a process by itself, as that of the soft GPU does.
class ProcessControl : public Control {
 public:
  Result<void> Freeze(std::uint32_t, std::span<const Target>, Reach reach) override {
    frozen = reach;
    ++counts_.freezes;
    return {};
  }
  Result<void> Thaw(std::uint32_t, std::span<const Target> targets, Reach) override {
    frozen.reset();
    thawed.assign(targets.begin(), targets.end());
    ++counts_.thaws;
    return {};
  }
  Result<void> SetSlice(std::uint32_t, const Target&, Nanos) override { return {}; }
  Result<Nanos> Slice(std::uint32_t, const Target&) override { return 0; }
  bool KnowsProcesses() const override { return knows; }
  std::uint32_t DeviceInstance(std::uint32_t gpu) const override { return gpu; }
  CallCounts Counts() const override { return counts_; }

  bool knows = true;
  std::optional<Reach> frozen;
  std::vector<Target> thawed;  // by the last call

 private:
  CallCounts counts_;
};

// The GPU begins with what is put back first, and may get no further before the next freeze.
TEST(FreezeAccount, EachGroupOfAProcessIsPutBackFirstInItsTurn) {
  ProcessControl control;
  control.knows = false;
  FreezeAccount account(control, [](bool, Nanos, Nanos) {});
  Target server{.pid = 1};
  for (const std::uint32_t client : {100, 200, 300})
    server.groups.push_back({.client = client, .engine = abi::kEngineGraphics, .channels = {10, 11}});
  std::map<std::uint32_t, int> firsts;
  for (int i = 0; i < 30; ++i) {
    for (const std::optional<Reach> reach : {std::optional(Reach::kCompute), std::optional<Reach>()}) {
      const FreezeAccount::Wish wish{server, reach};
      ASSERT_TRUE(account.Settle(0, {&wish, 1}).front().done);
    }
    ASSERT_EQ(control.thawed.front().groups.size(), 3u);
    ++firsts[control.thawed.front().groups.front().client];
  }
  EXPECT_EQ(firsts, (std::map<std::uint32_t, int>{{100, 10}, {200, 10}, {300, 10}}));
}

TEST(FreezeAccount, WhereTheControlFindsTheChannelsTheReachIsOrdered) {
  ProcessControl control;
  FreezeAccount account(control, [](bool, Nanos, Nanos) {});
  const auto settle = [&](std::optional<Reach> reach) {
    const FreezeAccount::Wish wish{{.pid = 1}, reach};
    return account.Settle(0, {&wish, 1}).front();
  };
  EXPECT_FALSE(settle({}).froze);
  EXPECT_EQ(control.Counts().thaws, 0u);
  EXPECT_TRUE(settle(Reach::kCompute).froze);
  EXPECT_EQ(control.frozen, Reach::kCompute);
  EXPECT_TRUE(settle(Reach::kAll).froze);
  EXPECT_EQ(control.frozen, Reach::kAll);
  settle(Reach::kAll);
  EXPECT_EQ(control.Counts().freezes, 2u);
  EXPECT_TRUE(account.AnyOff(1, 0));
  settle({});
  EXPECT_EQ(control.frozen, std::nullopt);
  EXPECT_FALSE(account.AnyOff(1, 0));
}

}  // namespace
}  // namespace tessera::channel
