#include "cli/vgpu/settings_options.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(ReadSettings, TakesTheWordsOfVgpuSet) {
  const auto settings = ReadSettings("  --memory 4G:8G --compute=20:40  --priority 2 ");
  ASSERT_TRUE(settings) << settings.error().Text();
  EXPECT_EQ(settings->memory, "4G:8G");
  EXPECT_EQ(settings->compute, "20:40");
  EXPECT_EQ(settings->priority, "2");
  EXPECT_TRUE(settings->weight.empty());
}

// The space of a vGPU cannot be changed, its part of the SMs can.
TEST(ReadSettings, KnowTheSmsAndNoSpace) {
  const auto settings = ReadSettings("--sm 33.5");
  ASSERT_TRUE(settings) << settings.error().Text();
  EXPECT_EQ(settings->sm, "33.5");
  EXPECT_TRUE(settings->space.empty());
  const auto space = ReadSettings("--space team");
  ASSERT_FALSE(space);
  EXPECT_NE(space.error().Text().find("unknown setting '--space'"), std::string::npos) << space.error().Text();
  EXPECT_FALSE(ReadSettings("--sm 0"));
  EXPECT_FALSE(ReadSettings("--sm 101"));
}

TEST(ReadSettings, AFlagThatIsNotThereChangesNothing) {
  EXPECT_EQ(ReadSettings("--weight 5")->sm_burst, std::nullopt);
  EXPECT_EQ(ReadSettings("--sm-burst")->sm_burst, true);
  EXPECT_EQ(ReadSettings("--no-sm-burst")->sm_burst, false);
}

TEST(ReadSettings, LabelsMayBeSeveral) {
  const auto settings = ReadSettings("--label team=a --weight 5 --label=stage=test");
  ASSERT_TRUE(settings) << settings.error().Text();
  EXPECT_EQ(settings->labels, (std::vector<std::string>{"team=a", "stage=test"}));
}

TEST(ReadSettings, SaysWhatIsWrong) {
  const auto text = [](const std::string& line) {
    const auto settings = ReadSettings(line);
    return settings ? std::string("nothing") : settings.error().Text();
  };
  EXPECT_NE(text("--memroy 4G").find("unknown setting '--memroy'; use --memory"), std::string::npos)
      << text("--memroy 4G");
  EXPECT_NE(text("4G").find("unknown setting '4G'"), std::string::npos) << text("4G");
  EXPECT_NE(text("--weight 0").find("from 1 to 10000"), std::string::npos) << text("--weight 0");
  EXPECT_NE(text("--help").find("unknown setting"), std::string::npos) << text("--help");
  EXPECT_NE(text("").find("nothing to set"), std::string::npos) << text("");
  EXPECT_NE(text("--memory").find("--memory"), std::string::npos) << text("--memory");
}

}  // namespace
}  // namespace tessera::cli
