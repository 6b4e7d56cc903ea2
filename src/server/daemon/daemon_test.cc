#include "server/daemon/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "base/testing/bystander.h"
#include "server/testing/daemon_test.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;

TEST_F(DaemonTest, OneThatEndsWithItsProgramsMakesNoSwapFile) {
  Config config;
  config.swap_size = "1G";
  config.swap_file = run_dir_ + "/swap";
  config.swap_file_size = "1T";
  TestDaemon daemon({.config = config, .exit_when_idle = true, .run_dir = run_dir_});
  EXPECT_EQ(daemon.Api().Gpus()->at(0).swap.value().file, 0u);
}

TEST_F(DaemonTest, AProgramThatJoinsIsNoLongerUnmanaged) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  daemon.Driver().SetMeasured(0, {.used = 900 * kMiB, .by_process = {{getpid(), 500 * kMiB}}});
  ASSERT_EQ(daemon.Api().Gpus()->at(0).memory_unmanaged, 900 * kMiB);
  daemon.Driver().SetMeasured(0, {});
  const auto unmanaged = [&] {
    return daemon.Loop().Call([&] { return daemon.Gpu().Measurement().UnmanagedBytes(); }).value();
  };
  ASSERT_EQ(unmanaged(), 900 * kMiB);
  FakeClient client = daemon.Connect("a");
  EXPECT_EQ(unmanaged(), 400 * kMiB);
}

TEST_F(DaemonTest, AnOwnerDoesNotThawWhatAnOperatorFroze) {
  TestDaemon daemon({.run_dir = run_dir_});
  Control owner = daemon.Api().For(61001, {});
  ASSERT_TRUE(owner.Create({.name = "a"}));
  ASSERT_TRUE(owner.Freeze("a", true));
  EXPECT_TRUE(owner.Freeze("a", false));
  ASSERT_TRUE(daemon.Api().Freeze("a", true));
  EXPECT_EQ(owner.Freeze("a", false).error().code, EPERM);
  EXPECT_EQ(owner.Freeze("a", true).error().code, EPERM);
  ASSERT_TRUE(daemon.Api().Freeze("a", false));
  EXPECT_TRUE(owner.Freeze("a", true));
}

TEST_F(DaemonTest, UsersGetWhatTheirQuotaAllows) {
  TestDaemon::Setup setup{.run_dir = run_dir_};
  setup.config.quotas = {{.name = "default", .bounds = {.memory = "4G", .swap = "0", .vgpus = 2}}};
  TestDaemon daemon(setup);
  Control user = daemon.Api().For(61001, {});
  ASSERT_TRUE(user.Create({.name = "a", .memory_request = "3G"}));
  const auto refused = user.Create({.name = "b", .memory_request = "2G"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_EQ(refused.error().message, "quota default allows memory of 4 GiB: 3 GiB in use, 2 GiB asked for");
  EXPECT_FALSE(Find(daemon, "b"));
  EXPECT_EQ(user.Change("a", {.memory_request = "5G"}).error().code, EDQUOT);
  EXPECT_TRUE(user.Change("a", {.memory_request = "4G"}));
  EXPECT_EQ(user.Change("a", {.compute_priority = "3"}).error().code, EDQUOT);
  EXPECT_TRUE(daemon.Api().For(61002, {}).Create({.name = "c", .memory_request = "4G"})) << "each user has one";
  EXPECT_TRUE(daemon.Api().Change("a", {.memory_request = "5G", .compute_priority = "0"})) << "operators have none";
  EXPECT_TRUE(user.Change("a", {.compute_weight = "50"})) << "what does not grow is not refused";
}

TEST_F(DaemonTest, AnEphemeralVGpuGoesWithItsOwner) {
  TestDaemon daemon;
  Bystander owner;
  daemon.Make({.name = "a", .ephemeral = true, .owner_pid = owner.Pid()});
  owner.Kill();
  EXPECT_TRUE(daemon.Eventually([&] { return !Find(daemon, "a"); }));
}

TEST_F(DaemonTest, AnEphemeralVGpuWaitsForItsLastProgram) {
  TestDaemon daemon;
  Bystander owner;
  daemon.Make({.name = "a", .ephemeral = true, .owner_pid = owner.Pid()});
  FakeClient client = daemon.Connect("a");
  owner.Kill();
  EXPECT_TRUE(client.TakeToken());
  EXPECT_TRUE(Find(daemon, "a"));
  client.Disconnect();
  EXPECT_TRUE(daemon.Eventually([&] { return !Find(daemon, "a"); }));
}

TEST_F(DaemonTest, RemovalNeedsForceWhileInUse) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  FakeClient client = daemon.Connect("a");
  ASSERT_EQ(client.Reserve(kGiB).bytes, kGiB);
  ASSERT_TRUE(client.TakeToken());
  const auto refused = daemon.Api().Remove("a", false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_THAT(refused.error().message, HasSubstr("1 process"));

  ASSERT_TRUE(daemon.Api().Remove("a", true));
  EXPECT_FALSE(Find(daemon, "a"));
  EXPECT_EQ(client.Page().removed.load(), 1u);
  EXPECT_EQ(client.Page().gate.load(), wire::GateOrder::kClosed);
  client.Send(wire::Wants{});
  EXPECT_EQ(client.Reserve(1).bytes, 0u);
  EXPECT_EQ(client.Page().gate.load(), wire::GateOrder::kClosed);
  EXPECT_EQ(daemon.Api().Gpus()->at(0).memory_used, kGiB);  // it still has it
  daemon.Make({.name = "a", .memory_request = "9G"});       // its name is free, what it holds is not
  const auto too_much = daemon.Api().Change("a", {.memory_request = "10G"});
  EXPECT_EQ(too_much.error().code, ENOSPC);
  client.Disconnect();
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Api().Change("a", {.memory_request = "10G"}).has_value(); }));
}

TEST_F(DaemonTest, ResizingReachesRunningPrograms) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  FakeClient client = daemon.Connect("a");
  EXPECT_EQ(client.Reserve(2 * kGiB).bytes, 0u);
  ASSERT_TRUE(daemon.Api().Change("a", {.memory_limit = "2G"}));
  EXPECT_EQ(client.Page().memory_max.load(), 2 * kGiB);
  EXPECT_EQ(client.Reserve(2 * kGiB).bytes, 2 * kGiB);
}

TEST_F(DaemonTest, WhatTheDeviceMeasuresIsCharged) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  FakeClient client = daemon.Connect("a");
  ASSERT_EQ(client.Reserve(200 * kMiB).bytes, 200 * kMiB);
  daemon.Driver().SetMeasured(0, {.used = 900 * kMiB, .by_process = {{getpid(), 500 * kMiB}}});
  const auto processes = daemon.Api().Processes();
  ASSERT_EQ(processes->size(), 1u);
  EXPECT_EQ(processes->at(0).memory_measured, 500 * kMiB);
  EXPECT_EQ(daemon.Report("a").memory_current, 500 * kMiB);
  EXPECT_EQ(daemon.Api().Gpus()->at(0).memory_unmanaged, 400 * kMiB);
  EXPECT_EQ(client.Reserve(600 * kMiB).bytes, 0u);
}

TEST_F(DaemonTest, ActiveProgramsAreMeasuredWithoutBeingAsked) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  daemon.Driver().SetMeasured(0, {.used = 300 * kMiB, .by_process = {{getpid(), 300 * kMiB}}});
  FakeClient client = daemon.Connect("a");
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").memory_current == 300 * kMiB; }));
}

TEST_F(DaemonTest, AnEmbeddedDaemonEndsWithItsLastOwner) {
  TestDaemon daemon({.exit_when_idle = true});
  Bystander owner;
  daemon.Make({.name = "a", .ephemeral = true, .owner_pid = owner.Pid()});
  owner.Kill();
  daemon.WaitEnd();
}

TEST_F(DaemonTest, AfterTheEndNobodyWaitsForAnAnswer) {
  TestDaemon daemon;
  daemon.Stop();
  EXPECT_FALSE(daemon.Loop().Call([] { return true; }));
}

TEST_F(DaemonTest, AReserveThatLeavesNothingIsRefused) {
  auto loop = std::move(*EventLoop::Create());
  auto daemon =
      Daemon::Start(*loop, std::make_unique<FakeDriver>(), {.config = {.memory_reserve = "100%"}, .run_dir = run_dir_});
  ASSERT_FALSE(daemon);
  EXPECT_THAT(daemon.error().message, HasSubstr("leaves nothing"));
}

// Root's programs may have twice as much.
TEST_F(DaemonTest, AUserAtTheBoundOfDescriptorsIsToldSo) {
  constexpr std::size_t kTwoPrograms = 2 * (UserBounds::kForConnection + UserBounds::kForAttachment);
  TestDaemon daemon({.user_bounds = {.descriptors = getuid() == 0 ? kTwoPrograms / 2 : kTwoPrograms}});
  daemon.Make({.name = "a"});
  FakeClient first = daemon.Connect("a");
  FakeClient second = daemon.Connect("a");
  const auto third = [&] { return FakeClient(daemon.RunDir()).ReadRefused(); };
  const wire::Refused refused = third();
  EXPECT_EQ(refused.code, EMFILE);
  EXPECT_THAT(std::string(wire::TextOf(refused.text)), HasSubstr("14 of the daemon's file descriptors already"));
  EXPECT_THAT(std::string(wire::TextOf(refused.text)), HasSubstr("as many as one user may have"));
  second.Disconnect();
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").processes.size() == 1; }));
  FakeClient instead = daemon.Connect("a");
  EXPECT_EQ(daemon.Report("a").processes.size(), 2u) << "what it had is given back";
}

}  // namespace
}  // namespace tessera::server
