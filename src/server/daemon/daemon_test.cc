#include "server/daemon/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "base/process/process_start.h"
#include "base/size.h"
#include "server/record/log.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;

// A process that does nothing until it is killed.
class Bystander {
 public:
  Bystander() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Bystander() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t Pid() const { return pid_; }

 private:
  pid_t pid_;
};

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "daemon_XXXXXX";
    run_dir_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(run_dir_); }
  static Result<VGpuReport> Find(TestDaemon& daemon, const std::string& name) { return daemon.Api().VGpuNamed(name); }
  std::string run_dir_;
};

TEST_F(DaemonTest, VGpusOutliveTheDaemon) {
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

TEST_F(DaemonTest, WhatWasAnsweredOutlivesAKill) {
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

TEST_F(DaemonTest, AStateThatCannotBeWrittenHoldsUpNobody) {
  TestDaemon daemon({.run_dir = run_dir_});
  std::filesystem::create_directory(run_dir_ + "/state.json.new");
  std::filesystem::create_directory(run_dir_ + "/vgpus.json.new");
  daemon.Make({.name = "a"});
  EXPECT_TRUE(Find(daemon, "a"));
}

TEST_F(DaemonTest, AnEphemeralVGpuWhoseOwnerDiedIsNotBroughtBack) {
  {
    Bystander owner;
    TestDaemon daemon({.run_dir = run_dir_});
    daemon.Make({.name = "b", .ephemeral = true, .owner_pid = owner.Pid()});
  }
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_FALSE(Find(daemon, "b"));
}

TEST_F(DaemonTest, AReusedPidIsNoOwner) {
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

// It may have the node's configuration, whose file only the node's daemon can make.
TEST_F(DaemonTest, OneThatEndsWithItsProgramsMakesNoSwapFile) {
  Config config;
  config.swap_size = "1G";
  config.swap_file = run_dir_ + "/swap";
  config.swap_file_size = "1T";
  TestDaemon daemon({.config = config, .exit_when_idle = true, .run_dir = run_dir_});
  EXPECT_EQ(daemon.Api().Gpus()->at(0).swap.value().file, 0u);
}

TEST_F(DaemonTest, VGpusOfAMissingGpuAreKept) {
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

TEST_F(DaemonTest, NobodyGetsRoomBeforeThoseOfTheEarlierDaemonHaveToldWhatTheyHave) {
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

// As a boot does: of the run directory nothing is left.
TEST_F(DaemonTest, VGpusThatWereMadeToLastOutliveABoot) {
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

TEST_F(DaemonTest, AnAbsentVGpuKeepsItsName) {
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

TEST_F(DaemonTest, AnAbsentVGpuCountsInItsOwnersQuota) {
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

TEST_F(DaemonTest, ABrokenFileOfVGpusIsNeverLost) {
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

TestDaemon::Setup WithVGpus(std::vector<DeclaredVGpu> vgpus, const std::string& run_dir) {
  TestDaemon::Setup setup{.run_dir = run_dir};
  setup.config.vgpus = std::move(vgpus);
  return setup;
}

TEST_F(DaemonTest, DeclaredVGpusAreMadeAndStay) {
  const DeclaredVGpu team{
      .name = "team", .where = "f.toml:3", .uid = 61001, .memory_limit = "2G", .compute_weight = "9"};
  {
    TestDaemon daemon(WithVGpus({team}, run_dir_));
    EXPECT_EQ(daemon.Report("team").memory_limit, 2 * kGiB);
    EXPECT_EQ(daemon.Report("team").uid, 61001u);
    const auto removed = daemon.Api().Remove("team", true);
    ASSERT_FALSE(removed);
    EXPECT_EQ(removed.error().message, "vGPU team is declared at f.toml:3");
    ASSERT_TRUE(daemon.Api().Change("team", {.memory_limit = "3G"}));
  }
  {
    TestDaemon daemon(WithVGpus({team}, run_dir_));
    EXPECT_EQ(daemon.Report("team").memory_limit, 2 * kGiB) << "when the daemon starts, the configuration decides";
  }
  TestDaemon daemon(WithVGpus({}, run_dir_));
  EXPECT_EQ(daemon.Report("team").compute_weight, 9u) << "it stays as an ordinary one";
  EXPECT_TRUE(daemon.Api().Remove("team", false));
}

// A user had the name first: no program of that user comes into the node's vGPU.
TEST_F(DaemonTest, AVGpuOfAnotherUserIsNotDeclaredWhileProgramsAreInIt) {
  TestDaemon daemon({.run_dir = run_dir_});
  ASSERT_TRUE(daemon.Api().For(61001, {}).Create({.name = "team"}));
  std::optional<FakeClient> program = daemon.Connect("team");
  Config config;
  config.vgpus = {{.name = "team", .where = "f:1", .uid = 61002}};
  const auto reload = [&] {
    return daemon.Loop().Call([&] { return daemon.Whole().Reload(config, MonotonicNow()); }).value();
  };
  log::Silence(true);
  const auto refused = reload();
  log::Silence(false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  EXPECT_THAT(refused.error().message, HasSubstr("f:1: vGPU team cannot be as it is declared: programs are in"));
  EXPECT_EQ(daemon.Report("team").uid, 61001u);
  program.reset();
  ASSERT_TRUE(daemon.Eventually([&] { return daemon.Report("team").processes.empty(); }));
  EXPECT_TRUE(reload());
  EXPECT_EQ(daemon.Report("team").uid, 61002u);
}

TEST_F(DaemonTest, ADeclarationThatCannotBeKeptStopsNobody) {
  TestDaemon daemon(WithVGpus({{.name = "large", .where = "f:1", .memory_limit = "99G"},
                               {.name = "whose", .where = "f:2", .user = "x", .uid = {}},
                               {.name = "fine", .where = "f:3"}},
                              run_dir_));
  EXPECT_FALSE(Find(daemon, "large"));
  EXPECT_FALSE(Find(daemon, "whose"));
  EXPECT_TRUE(Find(daemon, "fine"));
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

TEST_F(DaemonTest, ABrokenStateFileStopsNobody) {
  std::ofstream(run_dir_ + "/state.json") << "{\"version\":";
  TestDaemon daemon({.run_dir = run_dir_});
  EXPECT_TRUE(daemon.Api().VGpus()->empty());
  EXPECT_TRUE(std::filesystem::exists(run_dir_ + "/state.json.bad"));
}

TEST_F(DaemonTest, ProgramsReconnectWithWhatTheyHold) {
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
