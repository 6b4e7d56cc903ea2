#include "channel/self_test/self_test.h"

#include <gtest/gtest.h>

namespace tessera::channel {
namespace {

TEST(SelfTest, WhatIsWrittenIsRead) {
  const SelfTest written = {
      .driver = "580.159.04", .slice = 2048 * kMicrosecond, .freeze = 470 * kMicrosecond, .thaw = 250 * kMicrosecond};
  const std::string line = FormatSelfTest(written);
  EXPECT_EQ(line, R"({"ok":true,"driver":"580.159.04","slice_us":2048,"freeze_us":470,"thaw_us":250})");
  const auto read = ParseSelfTest(line);
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(read->driver, written.driver);
  EXPECT_EQ(read->slice, written.slice);
  EXPECT_EQ(read->freeze, written.freeze);
  EXPECT_EQ(read->thaw, written.thaw);
}

TEST(SelfTest, AFailureSaysWhereAndWhy) {
  const std::string line = FormatFailedSelfTest("freeze", "the \"kernel\" went on\xff");
  EXPECT_EQ(line, "{\"ok\":false,\"step\":\"freeze\",\"why\":\"the \\\"kernel\\\" went on\xef\xbf\xbd\"}");
  const auto read = ParseSelfTest(line);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ENOTSUP);
  EXPECT_EQ(read.error().message, "channel control fails its test at 'freeze': the \"kernel\" went on\xef\xbf\xbd");
}

TEST(SelfTest, OtherTextIsNoAnswer) {
  for (const char* line :
       {"", "Segmentation fault", "[]", "{}", "null", R"({"ok":1})", R"({"ok":true})", R"({"ok":true,"driver":"1.2"})",
        R"({"ok":true,"driver":"1.2","slice_us":-5,"freeze_us":1,"thaw_us":1})",
        R"({"ok":true,"driver":"1.2","slice_us":1e99,"freeze_us":1,"thaw_us":1})",
        R"({"ok":true,"driver":"1.2","slice_us":9223372036854775807,"freeze_us":1,"thaw_us":1})",
        R"({"ok":true,"driver":7,"slice_us":5,"freeze_us":1,"thaw_us":1})"}) {
    const auto read = ParseSelfTest(line);
    ASSERT_FALSE(read) << line;
    EXPECT_EQ(read.error().code, EPROTO) << line;
  }
}

TEST(SelfTest, VersionOfTheDriver) {
  EXPECT_EQ(DriverVersion("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  "
                          "(builder@host)  Mon Oct  6 10:09:38 UTC 2025\nGCC version:  gcc version 12.3.0\n"),
            "580.159.04");
  EXPECT_EQ(DriverVersion("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n"),
            "535.54.03");
  EXPECT_EQ(DriverVersion("no version here . .5"), "");
  EXPECT_EQ(DriverVersion(""), "");
}

}  // namespace
}  // namespace tessera::channel
