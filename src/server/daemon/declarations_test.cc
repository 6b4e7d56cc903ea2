#include "server/daemon/declarations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "server/record/log.h"
#include "server/testing/daemon_test.h"

namespace tessera::server {
namespace {

using DeclarationsTest = DaemonTest;
using testing::HasSubstr;

TestDaemon::Setup WithVGpus(std::vector<DeclaredVGpu> vgpus, const std::string& run_dir) {
  TestDaemon::Setup setup{.run_dir = run_dir};
  setup.config.vgpus = std::move(vgpus);
  return setup;
}

TEST_F(DeclarationsTest, DeclaredVGpusAreMadeAndStay) {
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

TEST_F(DeclarationsTest, AGangIsAsDeclared) {
  TestDaemon daemon(WithVGpus({{.name = "team", .where = "f.toml:3", .gang = "job"}}, run_dir_));
  EXPECT_EQ(daemon.Report("team").gang, "job");
  Config config;
  config.vgpus = {{.name = "team", .where = "f.toml:3"}};
  EXPECT_TRUE(daemon.Loop().Call([&] { return daemon.Whole().Reload(config, MonotonicNow()); }).value());
  EXPECT_EQ(daemon.Report("team").gang, "");
}

TEST_F(DeclarationsTest, LabelsAreAsDeclared) {
  const DeclaredVGpu team{.name = "team", .where = "f.toml:3", .labels = {{"team", "a"}}};
  const DeclaredVGpu odd{.name = "odd", .where = "f.toml:5", .labels = {{"vgpu", "a"}}};
  TestDaemon daemon(WithVGpus({team, odd}, run_dir_));
  EXPECT_EQ(daemon.Report("team").labels, (Labels{{"team", "a"}}));
  EXPECT_FALSE(daemon.Api().VGpuNamed("odd"));
  Config config;
  config.vgpus = {{.name = "team", .where = "f.toml:3"}};
  EXPECT_TRUE(daemon.Loop().Call([&] { return daemon.Whole().Reload(config, MonotonicNow()); }).value());
  EXPECT_EQ(daemon.Report("team").labels, Labels());
}

TEST_F(DeclarationsTest, AGoalIsAsDeclared) {
  const DeclaredVGpu team{.name = "team", .where = "f.toml:3", .goal = "speed=80%"};
  const DeclaredVGpu odd{.name = "odd", .where = "f.toml:5", .goal = "fast"};
  TestDaemon daemon(WithVGpus({team}, run_dir_));
  EXPECT_EQ(daemon.Report("team").goal, "speed=80%");
  const auto reload = [&](std::vector<DeclaredVGpu> vgpus) {
    Config config;
    config.vgpus = std::move(vgpus);
    return daemon.Loop().Call([&] { return daemon.Whole().Reload(config, MonotonicNow()); }).value();
  };
  reload({{.name = "team", .where = "f.toml:3"}});
  EXPECT_FALSE(daemon.Report("team").goal) << "what is not declared has its default";
  const auto refused = reload({team, odd});
  EXPECT_EQ(daemon.Report("team").goal, "speed=80%");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("f.toml:5"), std::string::npos) << refused.error().message;
}

// A user had the name first: no program of that user comes into the node's vGPU.
TEST_F(DeclarationsTest, AVGpuOfAnotherUserIsNotDeclaredWhileProgramsAreInIt) {
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

TEST_F(DeclarationsTest, ADeclarationThatCannotBeKeptStopsNobody) {
  TestDaemon daemon(WithVGpus({{.name = "large", .where = "f:1", .memory_limit = "99G"},
                               {.name = "whose", .where = "f:2", .user = "x", .uid = {}},
                               {.name = "fine", .where = "f:3"}},
                              run_dir_));
  EXPECT_FALSE(Find(daemon, "large"));
  EXPECT_FALSE(Find(daemon, "whose"));
  EXPECT_TRUE(Find(daemon, "fine"));
}

}  // namespace
}  // namespace tessera::server
