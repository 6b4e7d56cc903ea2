#include "cli/commands/targets.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(TargetPath, DigitsAreAProcess) {
  EXPECT_EQ(TargetPath("4711").value(), "/v1/processes/4711");
  EXPECT_EQ(TargetPath("0007").value(), "/v1/processes/7");
}

TEST(TargetPath, EverythingElseIsAVgpu) {
  EXPECT_EQ(TargetPath("team-a").value(), "/v1/vgpus/team-a");
  EXPECT_EQ(TargetPath("4711a").value(), "/v1/vgpus/4711a");
  EXPECT_EQ(TargetPath("1.5").value(), "/v1/vgpus/1.5");
  EXPECT_EQ(TargetPath("vgpu").value(), "/v1/vgpus/vgpu");
}

TEST(TargetPath, APrefixIsTheWayToAVgpuOfDigits) {
  EXPECT_EQ(TargetPath("vgpu:4711").value(), "/v1/vgpus/4711");
  EXPECT_EQ(TargetPath("vgpu:team-a").value(), "/v1/vgpus/team-a");
}

TEST(TargetPath, RefusesWhatNamesNothing) {
  for (const std::string word : {"", "0", "4711/x", "../x", "..", "a b", "vgpu:", "vgpu:a/b", "pid:4711", "99999999999",
                                 "18446744073709551616"}) {
    EXPECT_FALSE(TargetPath(word)) << word;
  }
  EXPECT_NE(TargetPath("99999999999").error().hint.find("vgpu:99999999999"), std::string::npos);
}

TEST(ParsePid, TakesPositiveNumbersOnly) {
  EXPECT_EQ(ParsePid("1").value(), 1);
  EXPECT_EQ(ParsePid("4194304").value(), 4194304);
  for (const std::string text : {"", "0", "-1", "x", "1x", "1.5", " 1", "2147483648"})
    EXPECT_FALSE(ParsePid(text)) << text;
}

}  // namespace
}  // namespace tessera::cli
