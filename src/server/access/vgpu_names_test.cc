#include "server/access/vgpu_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tessera::server {
namespace {

using testing::ElementsAre;

TEST(VGpuNames, AKeyIsForAllNames) {
  EXPECT_THAT(SplitNames("a").names, ElementsAre("a"));
  EXPECT_EQ(SplitNames("a").key, "");
  const VGpuNames two = SplitNames("a,b.c:0123456789abcdef");
  EXPECT_THAT(two.names, ElementsAre("a", "b.c"));
  EXPECT_EQ(two.key, "0123456789abcdef");
  EXPECT_THAT(SplitNames("a,").names, ElementsAre("a", ""));
  EXPECT_EQ(SplitNames("a:b:c").key, "b:c");
}

TEST(VGpuNames, NamesThatAreKept) {
  const std::string uid = "01234567-89ab-cdef-0123-456789abcdef";
  for (const std::string& kept :
       {std::string("slurm-1-0"), std::string("device-plugin.GPU-1.0"), "team.llm." + uid, "." + uid + "-12"})
    EXPECT_TRUE(IsKeptName(kept)) << kept;
  for (const std::string& free :
       {std::string("team"), uid, "team." + uid + "x", "team." + uid.substr(1), std::string("device-plugin")})
    EXPECT_FALSE(IsKeptName(free)) << free;
}

TEST(VGpuNames, Keys) {
  EXPECT_TRUE(CheckKey("0123456789abc_-Z"));
  for (const std::string& wrong : {std::string("0123456789abcde"), std::string(65, 'a'),
                                   std::string("0123456789abcd:f"), std::string("0123456789abcd\nf")})
    EXPECT_EQ(CheckKey(wrong).error().code, EINVAL) << wrong;
  EXPECT_TRUE(CheckKey(""));
  EXPECT_TRUE(OpensWith("", ""));
  EXPECT_TRUE(OpensWith("", "anything"));
  EXPECT_TRUE(OpensWith("0123456789abcdef", "0123456789abcdef"));
  EXPECT_FALSE(OpensWith("0123456789abcdef", ""));
  EXPECT_FALSE(OpensWith("0123456789abcdef", "0123456789abcde0"));
  EXPECT_FALSE(OpensWith("0123456789abcdef", "0123456789abcde"));
}

}  // namespace
}  // namespace tessera::server
