#include "tenant/options.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::tenant {
namespace {

Result<Options> Parse(std::vector<std::string> words) {
  std::vector<char*> argv = {const_cast<char*>("tessera-tenant")};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return ParseOptions(static_cast<int>(argv.size()) - 1, argv.data());
}

TEST(TenantOptions, ReadsUnits) {
  const auto options = Parse({"--kernel-us", "250", "--memory=64M", "--seconds", "1.5", "--grab", "--grab-chunk=2M"});
  ASSERT_TRUE(options) << options.error().Text();
  EXPECT_EQ(options->kernel_time, 250 * kMicrosecond);
  EXPECT_EQ(options->memory_bytes, 64ull << 20);
  EXPECT_EQ(options->seconds, 1.5);
  EXPECT_TRUE(options->grab);
  EXPECT_EQ(options->grab_chunk, 2ull << 20);
}

TEST(TenantOptions, WithoutAnyItWorksUntilItIsStopped) {
  const auto options = Parse({});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->seconds, 0);
  EXPECT_EQ(options->kernels, 0u);
  EXPECT_FALSE(options->grab);
}

TEST(TenantOptions, HelpNamesEveryOption) {
  for (const std::string option : {"--kernel-us N", "--memory SIZE", "--grab ", "--report-every MS"}) {
    EXPECT_NE(Help().find(option), std::string::npos) << option;
  }
}

TEST(TenantOptions, RefusesWhatMakesNoSense) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"--kernel-us", "x"},
                                                                 {"--kernel-us", "-5"},
                                                                 {"--kernel-us", "0"},
                                                                 {"--memory", "64Q"},
                                                                 {"--bogus"},
                                                                 {"--seconds"},
                                                                 {"stray"},
                                                                 {"--depth", "0"},
                                                                 {"--blocks", "0"},
                                                                 {"--sweep", "20B"},
                                                                 {"--schedule", "x"},
                                                                 {"--schedule", "x", "--burst", "1", "--memory", "1M"},
                                                                 {"--memory-stride", "4"}}) {
    EXPECT_FALSE(Parse(words)) << words[0];
  }
}

}  // namespace
}  // namespace tessera::tenant
