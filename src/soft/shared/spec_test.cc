#include "soft/shared/spec.h"

#include <gtest/gtest.h>

namespace tessera::soft {
namespace {

TEST(Spec, DefaultIsOneDevice) {
  const auto spec = ParseSpec("");
  ASSERT_TRUE(spec);
  EXPECT_EQ(*spec, Spec{});
  EXPECT_EQ(FormatSpec(*spec), "16GiB");
}

TEST(Spec, CountAndMemory) {
  const auto spec = ParseSpec("2x512MiB");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->devices, 2);
  EXPECT_EQ(spec->memory_bytes, 512 * kMiB);
}

TEST(Spec, AllKeys) {
  const auto spec = ParseSpec("4G,sms=16,pcie=8GB/s,speed=20M,slice=1ms,context=8MiB");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->multiprocessors, 16u);
  EXPECT_EQ(spec->pcie_bytes_per_second, 8'000'000'000u);
  EXPECT_EQ(spec->instructions_per_second, 20'000'000u);
  EXPECT_EQ(spec->slice, kMillisecond);
  EXPECT_EQ(spec->context_bytes, 8 * kMiB);
}

TEST(Spec, FormatReadsBack) {
  for (const char* text : {"16GiB", "3x1GiB", "1000", "2x4GiB,sms=2,pcie=123B/s,speed=5,slice=700us,context=3MiB"}) {
    const auto spec = ParseSpec(text);
    ASSERT_TRUE(spec) << text;
    EXPECT_EQ(FormatSpec(*spec), text);
  }
}

class BadSpec : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(BadSpec, IsRefusedWithAReason) {
  const auto spec = ParseSpec(GetParam().first);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, GetParam().second);
  EXPECT_NE(spec.error().message.find("soft GPU: '"), std::string::npos);
  EXPECT_NE(spec.error().hint.find("2x16GiB"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Texts, BadSpec,
                         testing::Values(std::pair{"x16GiB", EINVAL}, std::pair{"17x1GiB", ERANGE},
                                         std::pair{"0x1GiB", ERANGE}, std::pair{"0", ERANGE}, std::pair{"GiB", EINVAL},
                                         std::pair{"1GiB,", EINVAL}, std::pair{"1GiB,sms", EINVAL},
                                         std::pair{"1GiB,color=red", EINVAL}, std::pair{"1GiB,slice=5", EINVAL},
                                         std::pair{"1GiB,slice=0us", ERANGE}, std::pair{"1GiB,sms=5000", ERANGE},
                                         std::pair{"1GiB,pcie=8GB/m", EINVAL}, std::pair{"1GiB,speed=-1", EINVAL}));

}  // namespace
}  // namespace tessera::soft
