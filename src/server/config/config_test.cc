#include "server/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::server {
namespace {

using testing::HasSubstr;

Error ErrorOf(std::string_view text) {
  auto config = ParseConfig(text, "f.toml");
  EXPECT_FALSE(config) << text;
  return config ? Error{} : config.error();
}

TEST(ConfigTest, EmptyIsTheDefault) {
  const auto config = ParseConfig("", "f.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->sched.window, 100 * kMillisecond);
  EXPECT_EQ(config->sched.min_slice, 2 * kMillisecond);
  EXPECT_EQ(config->in_flight, 2 * kMillisecond);
  EXPECT_EQ(config->client_grace, 30 * kSecond);
  EXPECT_FALSE(config->block_on_daemon_loss);
  EXPECT_EQ(config->api_group, "tessera");
  EXPECT_TRUE(config->files);
}

TEST(ConfigTest, SoftPriorityIsPatienceOfAll) {
  const auto patience = [](const char* text) { return ParseConfig(text, "f.toml")->steering.patience; };
  EXPECT_EQ(patience(""), 0);
  EXPECT_EQ(patience("priority.patience_us = 200"), 0) << "the mode is strict";
  EXPECT_EQ(patience("priority.mode = \"soft\""), 100 * kMicrosecond);
  EXPECT_EQ(patience("priority = { mode = \"soft\", patience_us = 200 }"), 200 * kMicrosecond);
  EXPECT_FALSE(ParseConfig("priority.mode = \"mild\"", "f.toml"));
  EXPECT_FALSE(ParseConfig("priority.patience_us = 49", "f.toml"));
}

TEST(ConfigTest, IdlePrograms) {
  const auto idle = [](const char* text) { return ParseConfig(text, "f.toml")->suspend_idle; };
  EXPECT_EQ(idle(""), 0);
  EXPECT_EQ(idle("suspend.idle = \"0\""), 0);
  EXPECT_EQ(idle("suspend.idle = \"30min\""), 1800 * kSecond);
  for (const char* wrong : {"\"99ms\"", "\"-1s\"", "\"soon\"", "\"400000h\"", "\"\"", "30", "true"}) {
    const Error error = ErrorOf(("suspend.idle = " + std::string(wrong)).c_str());
    EXPECT_THAT(error.Text(), testing::AllOf(HasSubstr("suspend.idle"), HasSubstr("100ms or more"))) << wrong;
  }
  EXPECT_TRUE(ParseConfig("suspend.idle_to = \"file\"", "f.toml")->suspend_idle_to_file);
  EXPECT_THAT(ErrorOf("suspend.idle_to = \"disk\"").Text(), HasSubstr("\"memory\" or \"file\""));
}

TEST(ConfigTest, EveryKey) {
  const auto config = ParseConfig(R"(
    memory.reserve = "3%"
    api = { group = "gpu" }
    files.enabled = false
    swap = { size = "25%", floor = "4G", file = "/var/swap", file_size = "200G", prepare = "auto" }
    turn = { min_ms = 100, max_ms = 5000 }
    [sched]
    window_ms = 50
    min_slice_ms = 0.5
    in_flight_ms = 1.5
    [client]
    grace_s = 5
    on_daemon_loss = "block"
  )",
                                  "f.toml");
  ASSERT_TRUE(config) << config.error().Text();
  EXPECT_EQ(config->sched.window, 50 * kMillisecond);
  EXPECT_EQ(config->sched.min_slice, 500 * kMicrosecond);
  EXPECT_EQ(config->in_flight, 1500 * kMicrosecond);
  EXPECT_EQ(config->client_grace, 5 * kSecond);
  EXPECT_TRUE(config->block_on_daemon_loss);
  EXPECT_EQ(config->memory_reserve, "3%");
  EXPECT_EQ(config->swap_size, "25%");
  EXPECT_EQ(config->swap_floor, "4G");
  EXPECT_EQ(config->swap_prepare, "auto");
  EXPECT_EQ(config->swap_file, "/var/swap");
  EXPECT_EQ(config->swap_file_size, "200G");
  EXPECT_EQ(config->residency.turn_min, 100 * kMillisecond);
  EXPECT_EQ(config->residency.turn_max, 5 * kSecond);
  EXPECT_EQ(config->api_group, "gpu");
  EXPECT_FALSE(config->files);
}

TEST(ConfigTest, UnknownKeyNamesTheNearest) {
  const Error error = ErrorOf("[sched]\nwindow_msec = 5");
  EXPECT_EQ(error.message, "f.toml:2: unknown key sched.window_msec");
  EXPECT_EQ(error.hint, "did you mean sched.window_ms?");
  EXPECT_THAT(ErrorOf("[shed]\nmin_slice_ms = 5").hint, HasSubstr("sched.min_slice_ms"));
  EXPECT_THAT(ErrorOf("grace = 5").hint, HasSubstr("client.grace_s"));
}

TEST(ConfigTest, WrongValuesSayWhatIsExpected) {
  EXPECT_EQ(ErrorOf("[client]\ngrace_s = \"long\"").message,
            "f.toml:2: client.grace_s must be a number from 0 to 86400");
  EXPECT_THAT(ErrorOf("client.on_daemon_loss = \"panic\"").message, HasSubstr("\"continue\" or \"block\""));
  EXPECT_THAT(ErrorOf("sched.window_ms = 0").message, HasSubstr("10 to 10000"));
  EXPECT_THAT(ErrorOf("memory.reserve = \"much\"").message, HasSubstr("a size"));
  EXPECT_THAT(ErrorOf("files.enabled = 1").message, HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf("sched = 3").message, HasSubstr("unknown key sched"));
  EXPECT_THAT(ErrorOf("sched.min_slice_ms = 200").message, HasSubstr("longer than"));
  EXPECT_THAT(ErrorOf("api.listen = \"9477\"").message, HasSubstr("127.0.0.1:9477"));
  EXPECT_THAT(ErrorOf("api.listen = \"localhost:9477\"").hint, HasSubstr("api.token_file"));
  EXPECT_THAT(ErrorOf("api.token_file = \"token\"").message, HasSubstr("from /"));
}

TEST(ConfigTest, QuotasComeInTheOrderOfTheFile) {
  const auto config = ParseConfig(R"(
[quota."@users"]
memory = "20G"
[quota.root]
vgpus = "max"
[quota."@root"]
compute = 12.5
[quota.default]
priority = 4
[quota.no-such-user]
)",
                                  "f.toml");
  ASSERT_TRUE(config) << config.error().Text();
  ASSERT_EQ(config->quotas.size(), 5u);
  EXPECT_EQ(config->quotas[0].name, "@users");
  EXPECT_TRUE(config->quotas[0].group);
  EXPECT_EQ(config->quotas[0].bounds.memory, "20G");
  EXPECT_EQ(config->quotas[1].user, 0u);
  EXPECT_EQ(config->quotas[1].bounds.vgpus, QuotaBounds::kNone);
  EXPECT_EQ(config->quotas[2].group, 0u);
  EXPECT_EQ(config->quotas[2].bounds.compute, 12.5);
  EXPECT_EQ(config->quotas[3].bounds.priority, 4u);
  EXPECT_FALSE(config->quotas[4].user || config->quotas[4].group);
  EXPECT_THAT(ErrorOf("[quota.a]\nmemroy = 1").Text(),
              AllOf(HasSubstr("f.toml:2: unknown key quota.a.memroy"), HasSubstr("did you mean memory?")));
  EXPECT_THAT(ErrorOf("[quota.a]\nmemory = \"much\"").message, HasSubstr("quota.a.memory must be a size"));
  EXPECT_THAT(ErrorOf("[quota.a]\npriority = 16").message, HasSubstr("0 to 15"));
  EXPECT_THAT(ErrorOf("quota.a = 1").Text(), HasSubstr("write [quota.NAME]"));
}

TEST(ConfigTest, VGpusAreDeclared) {
  const auto config =
      ParseConfig("[vgpu.\"a.b\"]\ngpu = 1\nmemory_limit = \"20G\"\nuser = \"root\"\n[vgpu.c]\n", "f.toml");
  ASSERT_TRUE(config) << config.error().Text();
  ASSERT_EQ(config->vgpus.size(), 2u);
  EXPECT_EQ(config->vgpus[0].name, "a.b");
  EXPECT_EQ(config->vgpus[0].where, "f.toml:1");
  EXPECT_EQ(config->vgpus[0].gpu, "1");
  EXPECT_EQ(config->vgpus[0].memory_limit, "20G");
  EXPECT_EQ(config->vgpus[1].uid, 0u);
}

TEST(ConfigTest, ADeclaredVGpuMayHaveAGoal) {
  const auto config = ParseConfig("[vgpu.a]\ngoal = \"p99=20ms\"\n[vgpu.b]\n", "f.toml");
  ASSERT_TRUE(config) << config.error().Text();
  EXPECT_EQ(config->vgpus[0].goal, "p99=20ms");
  EXPECT_FALSE(config->vgpus[1].goal);
  DeclaredVGpu other = config->vgpus[0];
  EXPECT_TRUE(other.SameAs(config->vgpus[0]));
  other.goal.reset();
  EXPECT_FALSE(other.SameAs(config->vgpus[0])) << "a reload that takes it out changes the vGPU";
  EXPECT_THAT(ErrorOf("[vgpu.a]\ngoal = [1]\n").message, HasSubstr("goal"));
}

TEST(ConfigTest, ADeclaredVGpuMayBeInAGang) {
  const auto config = ParseConfig("[vgpu.a]\ngang = \"job\"\n[vgpu.b]\n", "f.toml");
  ASSERT_TRUE(config) << config.error().Text();
  EXPECT_EQ(config->vgpus[0].gang, "job");
  DeclaredVGpu other = config->vgpus[0];
  other.gang.reset();
  EXPECT_FALSE(other.SameAs(config->vgpus[0]));
}

TEST(ConfigTest, ADeclaredVGpuMayHaveLabels) {
  const auto config = ParseConfig("[vgpu.a]\nlabels = {team = \"a b\", stage = \"test\"}\n", "f.toml");
  ASSERT_TRUE(config) << config.error().Text();
  EXPECT_THAT(config->vgpus[0].labels,
              testing::ElementsAre(testing::Pair("stage", "test"), testing::Pair("team", "a b")));
  EXPECT_EQ(config->given.at("vgpu.a.labels"), "{stage = \"test\", team = \"a b\"}");
  EXPECT_TRUE(ParseConfig("[vgpu.a]\n[vgpu.a.labels]\nteam = \"a\"\n", "f.toml"));
  DeclaredVGpu other = config->vgpus[0];
  other.labels["team"] = "c";
  EXPECT_FALSE(other.SameAs(config->vgpus[0]));
  for (const char* wrong : {"labels = \"team=a\"", "labels = {team = 1}", "labels = {team = {}}", "labels = [\"a\"]"})
    EXPECT_THAT(ErrorOf(std::string("[vgpu.a]\n") + wrong + "\n").message, HasSubstr("labels must be a table of texts"))
        << wrong;
}

TEST(ConfigTest, NamedSectionsAreReadAgain) {
  const auto running = ParseConfig("[quota.default]\nvgpus = 3\n[vgpu.a]\ncompute_weight = 5", "a");
  const auto read = ParseConfig("[quota.default]\nvgpus = 16\n[vgpu.b]\n", "b");
  ASSERT_TRUE(running && read);
  std::vector<std::string> changed;
  for (const ConfigChange& each : Difference(*running, *read))
    changed.push_back(each.key + " " + each.from + " " + each.to + (each.live ? " live" : ""));
  EXPECT_THAT(changed, testing::ElementsAre("quota.default.vgpus 3 16 live", "vgpu.a {} none live",
                                            "vgpu.a.compute_weight 5 none live", "vgpu.b none {} live"));
  const auto merged = MergeLive(*running, *read);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->vgpus.at(0).name, "b");
  EXPECT_TRUE(Difference(*merged, *read).empty());
}

TEST(ConfigTest, BrokenTomlNamesTheLine) { EXPECT_THAT(ErrorOf("\n[sched\n").message, HasSubstr("f.toml:2:")); }

TEST(ConfigTest, AMissingFileIsNamed) {
  const auto config = LoadConfig("/nonexistent/t.toml");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ENOENT);
  EXPECT_THAT(config.error().message, HasSubstr("/nonexistent/t.toml"));
}

TEST(ConfigTest, UnknownSectionsAreRefusedToo) {
  EXPECT_THAT(ErrorOf("[shed]\nwindow_ms = 50\n").Text(), HasSubstr("unknown key shed.window_ms"));
  const Error error = ErrorOf("[shed]\n");
  EXPECT_THAT(error.message, HasSubstr("f.toml:1: unknown section shed"));
  EXPECT_EQ(error.hint, "did you mean sched?");
  EXPECT_TRUE(ParseConfig("[sched]\n", "f.toml"));
}

TEST(ConfigTest, WhatDiffersIsToldWithItsDefault) {
  const auto before = ParseConfig("sched.window_ms = 50\nswap.size = \"10%\"", "a");
  const auto after = ParseConfig("[sched]\nwindow_ms = 50\nmin_slice_ms = 2\n[client]\ngrace_s = 5", "b");
  ASSERT_TRUE(before && after);
  const auto changes = Difference(*before, *after);
  ASSERT_EQ(changes.size(), 2u) << "a default that is written out is no change";
  EXPECT_EQ(changes[0].key, "client.grace_s");
  EXPECT_EQ(changes[0].from, "30");
  EXPECT_EQ(changes[0].to, "5");
  EXPECT_TRUE(changes[0].live);
  EXPECT_EQ(changes[1].key, "swap.size");
  EXPECT_EQ(changes[1].to, "\"50%\"");
  EXPECT_FALSE(changes[1].live);
}

TEST(ConfigTest, WhatIsReadAgainIsMergedWithWhatCannotChange) {
  const auto running = ParseConfig("swap.size = '10%'\nsched.window_ms = 50\nclient.grace_s = 7", "a");
  const auto read = ParseConfig("swap.size = '20%'\nsched.window_ms = 200\nfiles.enabled = false", "b");
  ASSERT_TRUE(running && read);
  const auto merged = MergeLive(*running, *read);
  ASSERT_TRUE(merged) << merged.error().Text();
  EXPECT_EQ(merged->swap_size, "10%");
  EXPECT_TRUE(merged->files);
  EXPECT_EQ(merged->sched.window, 200 * kMillisecond);
  EXPECT_EQ(merged->steering.shares.window, 200 * kMillisecond);
  EXPECT_EQ(merged->client_grace, 30 * kSecond) << "its default again";
  EXPECT_EQ(Difference(*merged, *read).size(), 2u) << "of these it is still told";
}

}  // namespace
}  // namespace tessera::server
