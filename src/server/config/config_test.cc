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

TEST(ConfigTest, EveryKey) {
  const auto config = ParseConfig(R"(
    memory.reserve = "3%"
    api = { group = "gpu" }
    files.enabled = false
    swap = { size = "25%", floor = "4G", file = "/var/swap", file_size = "200G" }
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
