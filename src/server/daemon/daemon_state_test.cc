// What outlives the daemon: vGPUs, and what is known of programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/process/process_start.h"
#include "base/size.h"
#include "base/testing/bystander.h"
#include "server/state/state_file.h"
#include "server/testing/daemon_test.h"

namespace tessera::server {
namespace {

using DaemonStateTest = DaemonTest;

TEST_F(DaemonStateTest, VGpusOutliveTheDaemon) {
  Bystander owner;
  {
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "a",
                 .memory_request = "1G",
                 .memory_limit = "3G",
                 .compute_request = "30",
                 .compute_limit = "60",
                 .compute_weight = "7"});
    daemon.Make({.name = "b", .ephemeral = true, .owner_pid = owner.Pid()});
    daemon.Make({.name = "gone"});
    ASSERT_TRUE(daemon.Api().Remove("gone", false));
  }
  TestDaemon daemon({.run_dir = run_dir_});
  const auto a = daemon.Report("a");
  EXPECT_EQ(a.memory_request, kGiB);
  EXPECT_EQ(a.memory_limit, 3 * kGiB);
  EXPECT_EQ(a.compute_request_pct, 30);
  EXPECT_EQ(a.compute_limit_pct, 60);
  EXPECT_EQ(a.compute_weight, 7u);
  EXPECT_EQ(daemon.Report("b").owner_pid, owner.Pid());
  EXPECT_FALSE(Find(daemon, "gone"));
}

TEST_F(DaemonStateTest, WhatWasAnsweredOutlivesAKill) {
  TestDaemon daemon({.run_dir = run_dir_});
  const auto saved = [&] { return LoadState(run_dir_ + "/vgpus.json").value().vgpus; };
  for (int i = 0; i < 20; ++i) {
    daemon.Make({.name = "a", .compute_weight = "7"});
    ASSERT_EQ(saved().size(), 1U);
    ASSERT_TRUE(daemon.Api().Change("a", {.compute_weight = "9"}));
    ASSERT_EQ(saved().at(0).spec.compute.weight, 9);
    ASSERT_TRUE(daemon.Api().Remove("a", false));
    ASSERT_TRUE(saved().empty());
  }
}

TEST_F(DaemonStateTest, AStateThatCannotBeWrittenHoldsUpNobody) {
  TestDaemon daemon({.run_dir = run_dir_});
  std::filesystem::create_directory(run_dir_ + "/state.json.new");
  std::filesystem::create_directory(run_dir_ + "/vgpus.json.new");
  daemon.Make({.name = "a"});
  EXPECT_TRUE(Find(daemon, "a"));
}

TEST_F(DaemonStateTest, AnEphemeralVGpuWhoseOwnerDiedIsNotBroughtBack) {
  {
    Bystander owner;
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "b", .ephemeral = true, .owner_pid = owner.Pid()});
  }
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_FALSE(Find(daemon, "b"));
}

TEST_F(DaemonStateTest, AReusedPidIsNoOwner) {
  const auto start = ProcessStart(getpid());
  ASSERT_TRUE(start);
  const SavedVGpu ours{.spec = {.name = "ours", .ephemeral = true, .owner_pid = getpid(), .owner_start = *start},
                       .gpu = FakeDriver::UuidOf(0)};
  SavedVGpu theirs = ours;
  theirs.spec.name = "theirs";
  theirs.spec.owner_start -= 1;
  ASSERT_TRUE(SaveState(run_dir_ + "/state.json", FormatState({.vgpus = {ours, theirs}})));
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_TRUE(Find(daemon, "ours"));
  EXPECT_FALSE(Find(daemon, "theirs"));
}

TEST_F(DaemonStateTest, AGoalIsKept) {
  {
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "a", .goal = "p99.9=5ms"});
    daemon.Make({.name = "b"});
  }
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_EQ(daemon.Report("a").goal, "p99.9=5ms");
  EXPECT_FALSE(daemon.Report("b").goal);
}

TEST_F(DaemonStateTest, AGangIsKept) {
  {
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "a", .gang = "job"});
    daemon.Make({.name = "b"});
  }
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_EQ(daemon.Report("a").gang, "job");
  EXPECT_EQ(daemon.Report("b").gang, "");
}

TEST_F(DaemonStateTest, LabelsAreKept) {
  std::string tag;
  {
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "a", .labels = Labels{{"team", "M\u00fcnchen"}, {"pod", "\"\\"}}});
    daemon.Make({.name = "b"});
    tag = daemon.Report("a").tag;
    EXPECT_TRUE(daemon.Api().Change("b", {.labels = Labels{{"pod", "x"}}}, false));
    EXPECT_NE(daemon.Report("b").tag, daemon.Report("a").tag);
  }
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_EQ(daemon.Report("a").labels, (Labels{{"team", "M\u00fcnchen"}, {"pod", "\"\\"}}));
  EXPECT_EQ(daemon.Report("a").tag, tag);
  EXPECT_EQ(daemon.Report("b").labels, (Labels{{"pod", "x"}}));
}

// Of a daemon that knew no goals.
TEST(StateFile, WithoutGoalsIsRead) {
  const SavedVGpu saved{.spec = {.name = "a", .goal = sched::SpeedGoal{80}}, .gpu = FakeDriver::UuidOf(0)};
  std::string text = FormatState({.vgpus = {saved}});
  const auto read = ParseState(text);
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(read->vgpus.at(0).spec.goal, sched::Goal(sched::SpeedGoal{80}));
  const auto goal = text.find("\"goal\": \"speed=80%\",");
  ASSERT_NE(goal, std::string::npos) << text;
  text.erase(goal, text.find('\n', goal) - goal);
  const auto old = ParseState(text);
  ASSERT_TRUE(old) << old.error().Text();
  EXPECT_FALSE(old->vgpus.at(0).spec.goal);
}

TEST(StateFile, KeepsSpaces) {
  SavedVGpu saved{.spec = {.name = "a"}, .gpu = FakeDriver::UuidOf(0)};
  saved.spec.space = "team";
  saved.spec.compute.space = {.sm_pct = 33.5, .reserved = true, .from_pct = 20, .burst = true};
  const SavedVGpu alone{.spec = {.name = "b"}, .gpu = FakeDriver::UuidOf(0)};
  const std::string text =
      FormatState({.vgpus = {saved, alone}, .spaces = {{.name = "kept", .gpu = FakeDriver::UuidOf(1), .uid = 1000}}});
  const auto read = ParseState(text);
  ASSERT_TRUE(read) << read.error().Text();
  ASSERT_EQ(read->vgpus.size(), 2u);
  EXPECT_EQ(read->vgpus[0].spec.space, "team");
  EXPECT_EQ(read->vgpus[0].spec.compute.space, saved.spec.compute.space) << "it gets a number when it enters";
  EXPECT_EQ(read->vgpus[1].spec.space, "");
  EXPECT_EQ(read->vgpus[1].spec.compute.space, sched::SpacePlace());
  ASSERT_EQ(read->spaces.size(), 1u);
  EXPECT_EQ(read->spaces[0].name, "kept");
  EXPECT_EQ(read->spaces[0].gpu, FakeDriver::UuidOf(1));
  EXPECT_EQ(read->spaces[0].uid, 1000u);
}

TEST(StateFile, KeepsGpusThatDrain) {
  const auto read = ParseState(FormatState({.draining = {FakeDriver::UuidOf(1)}}));
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(read->draining, std::vector{FakeDriver::UuidOf(1)});
  EXPECT_TRUE(ParseState(FormatState({}))->draining.empty()) << "as of a daemon that knew none";
  std::string text = FormatState({.draining = {FakeDriver::UuidOf(1)}});
  text.replace(text.find("GPU-"), 4, "CPU-");
  EXPECT_EQ(ParseState(text).error().code, EBADMSG);
}

// Of a daemon that knew no spaces.
TEST(StateFile, WithoutSpacesIsRead) {
  std::string text = FormatState({.vgpus = {{.spec = {.name = "a"}, .gpu = FakeDriver::UuidOf(0)}}});
  const auto spaces = text.find(" \"spaces\": [],\n");
  ASSERT_NE(spaces, std::string::npos) << text;
  text.erase(spaces, std::string(" \"spaces\": [],\n").size());
  const auto read = ParseState(text);
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(read->vgpus.size(), 1u);
  EXPECT_TRUE(read->spaces.empty());
}

TEST(StateFile, AWrongSpaceIsNoState) {
  const std::string good = FormatState({.spaces = {{.name = "kept", .gpu = FakeDriver::UuidOf(1), .uid = 1000}}});
  ASSERT_TRUE(ParseState(good));
  for (const auto& [what, by] :
       {std::pair("GPU-", "CPU-"), std::pair("\"kept\"", "7"), std::pair("\"uid\"", "\"id\"")}) {
    std::string text = good;
    text.replace(text.find(what), std::string(what).size(), by);
    const auto read = ParseState(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, EBADMSG);
  }
}

TEST(StateFile, AWrongGoalIsNoState) {
  const SavedVGpu saved{.spec = {.name = "a", .goal = sched::SpeedGoal{80}}, .gpu = FakeDriver::UuidOf(0)};
  std::string text = FormatState({.vgpus = {saved}});
  text.replace(text.find("speed=80%"), 9, "fast");
  const auto read = ParseState(text);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, EBADMSG);
}

TEST_F(DaemonStateTest, VGpusOfAMissingGpuAreKept) {
  {
    TestDaemon daemon({.gpus = 2, .run_dir = run_dir_});
    daemon.Make({.name = "a", .gpu = "1"});
  }
  {
    TestDaemon daemon({.gpus = 1, .run_dir = run_dir_});
    EXPECT_FALSE(Find(daemon, "a"));
    daemon.Make({.name = "b"});
  }
  TestDaemon daemon({.gpus = 2, .run_dir = run_dir_});
  EXPECT_EQ(daemon.Report("a").gpu, 1u);
  EXPECT_EQ(daemon.Report("b").gpu, 0u);
}

TEST_F(DaemonStateTest, NobodyGetsRoomBeforeThoseOfTheEarlierDaemonHaveToldWhatTheyHave) {
  Config config;
  config.swap_size = "1G";
  const auto wire_gpu = FakeDriver::UuidOf(0);
  Bystander other;
  TestDaemon before({.config = config, .run_dir = run_dir_});
  before.Make({.name = "a"});
  FakeClient lost = before.Connect("a");
  EXPECT_EQ(lost.AskForRoom(kGiB).bytes, kGiB);
  before.Stop();
  auto saved = LoadState(run_dir_ + "/state.json").value();
  ASSERT_EQ(saved.programs.size(), 1u) << "the test's own process";
  EXPECT_EQ(saved.programs.at(0).name, (ProcessName{getpid(), ProcessStart(getpid()).value()}));
  EXPECT_EQ(saved.programs.at(0).gpu, wire_gpu);
  saved.programs.push_back({{other.Pid(), ProcessStart(other.Pid()).value()}, wire_gpu});
  saved.programs.push_back({{other.Pid(), ProcessStart(other.Pid()).value() - 1}, wire_gpu});  // had that pid before
  ASSERT_TRUE(SaveState(run_dir_ + "/state.json", FormatState(saved)));

  TestDaemon daemon({.config = config, .run_dir = run_dir_});
  FakeClient client = daemon.Connect("a");
  const auto answer = client.AskForRoom(kGiB);
  EXPECT_EQ(answer.bytes, 0u);
  EXPECT_TRUE(answer.wait);
  EXPECT_EQ(client.Page().room_credit.load(), 0);
  EXPECT_TRUE(daemon.Eventually([&] { return LoadState(run_dir_ + "/state.json")->programs.size() == 2; }))
      << "a third daemon would know of both";
  other.Kill();
  EXPECT_TRUE(daemon.Eventually([&] { return client.Page().room_credit.load() == static_cast<std::int64_t>(kGiB); }));
}

// As a boot does: of the run directory nothing is left.
TEST_F(DaemonStateTest, VGpusThatWereMadeToLastOutliveABoot) {
  const std::string state = run_dir_ + "/state";
  std::filesystem::create_directory(state);
  Bystander owner;
  {
    TestDaemon daemon({.state_dir = state});
    daemon.Make({.name = "a", .memory_limit = "3G", .compute_weight = "7"});
    ASSERT_TRUE(daemon.Api().Freeze("a", true));
    ASSERT_TRUE(daemon.Api().For(61001, {}).Create({.name = "theirs"}));
    const auto before = std::filesystem::last_write_time(state + "/vgpus.json");
    daemon.Make({.name = "b", .ephemeral = true, .owner_pid = owner.Pid()});
    EXPECT_EQ(std::filesystem::last_write_time(state + "/vgpus.json"), before) << "b does not concern it";
  }
  TestDaemon daemon({.state_dir = state});
  EXPECT_EQ(daemon.Report("a").memory_limit, 3 * kGiB);
  EXPECT_THAT(daemon.Report("a").frozen, testing::ElementsAre(testing::StrEq("operator")));
  EXPECT_EQ(daemon.Report("theirs").uid, 61001u);
  EXPECT_FALSE(Find(daemon, "b"));
}

TEST_F(DaemonStateTest, AnAbsentVGpuKeepsItsName) {
  {
    TestDaemon daemon({.gpus = 2, .run_dir = run_dir_});
    ASSERT_TRUE(daemon.Api().For(61001, {}).Create({.name = "a", .gpu = "1"}));
    daemon.Make({.name = "large", .gpu = "0", .memory_request = "10G"});
  }
  {
    TestDaemon daemon({.memory = 5 * kGiB, .run_dir = run_dir_});
    EXPECT_FALSE(Find(daemon, "large")) << "its promise cannot be kept";
    const auto taken = daemon.Api().For(61002, {}).Create({.name = "a"});
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, EEXIST);
  }
  {
    TestDaemon daemon({.gpus = 2, .run_dir = run_dir_});
    EXPECT_EQ(daemon.Report("a").gpu, 1u);
    EXPECT_EQ(daemon.Report("large").memory_request, 10 * kGiB);
  }
  {
    TestDaemon daemon({.run_dir = run_dir_});
    ASSERT_TRUE(daemon.Api().For(61001, {}).Create({.name = "a"})) << "its owner makes it anew";
  }
  TestDaemon daemon({.gpus = 2, .run_dir = run_dir_});
  EXPECT_EQ(daemon.Report("a").gpu, 0u);
}

TEST_F(DaemonStateTest, AnAbsentVGpuCountsInItsOwnersQuota) {
  TestDaemon::Setup setup{.gpus = 2, .run_dir = run_dir_};
  setup.config.quotas = {{.name = "default", .bounds = {.vgpus = 1}}};
  {
    TestDaemon daemon(setup);
    ASSERT_TRUE(daemon.Api().For(61001, {}).Create({.name = "a", .gpu = "1"}));
  }
  setup.gpus = 1;
  TestDaemon daemon(setup);
  Control owner = daemon.Api().For(61001, {});
  EXPECT_EQ(owner.Create({.name = "b"}).error().code, EDQUOT);
  EXPECT_TRUE(owner.Create({.name = "a"})) << "in its place";
}

TEST_F(DaemonStateTest, ABrokenFileOfVGpusIsNeverLost) {
  for (int n = 0; n < 2; ++n) {
    std::ofstream(run_dir_ + "/vgpus.json") << "broken " << n;
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "a"});
  }
  const auto first_of = [this](const std::string& name) {
    std::string line;
    std::getline(std::ifstream(run_dir_ + name), line);
    return line;
  };
  EXPECT_EQ(first_of("/vgpus.json.bad"), "broken 0");
  EXPECT_EQ(first_of("/vgpus.json.bad.1"), "broken 1");
}

TEST_F(DaemonStateTest, ABrokenStateFileStopsNobody) {
  std::ofstream(run_dir_ + "/state.json") << "{\"version\":";
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_TRUE(daemon.Api().VGpus()->empty());
  EXPECT_TRUE(std::filesystem::exists(run_dir_ + "/state.json.bad"));
}

TEST_F(DaemonStateTest, ProgramsReconnectWithWhatTheyHold) {
  auto first = std::make_unique<TestDaemon>(TestDaemon::Setup{.run_dir = run_dir_});
  first->Make({.name = "a", .memory_limit = "1G"});
  FakeClient client = first->Connect("a");
  ASSERT_EQ(client.Reserve(600 * kMiB).bytes, 600 * kMiB);
  ASSERT_TRUE(client.TakeToken());
  first.reset();
  EXPECT_TRUE(client.ReadsEnd());
  EXPECT_NE(client.Page().gate.load(), wire::GateOrder::kClosed);  // the last order stands

  TestDaemon second({.run_dir = run_dir_});
  FakeClient again(run_dir_);
  again.Hello("a");
  again.Attach(FakeDriver::UuidOf(0), 600 * kMiB, 1);
  EXPECT_EQ(second.Report("a").memory_current, 600 * kMiB + FakeDriver::kContext);
  EXPECT_EQ(again.Page().memory_available.load(), kGiB - 600 * kMiB - FakeDriver::kContext);
  EXPECT_TRUE(again.TakeToken());
}

}  // namespace
}  // namespace tessera::server
