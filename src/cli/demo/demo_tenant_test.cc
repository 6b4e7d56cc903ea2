#include "cli/demo/demo_tenant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::DoubleEq;
using testing::Optional;

const std::vector<Sample> kSteady = {{1'000'000, 0}, {1'100'000, 50}, {1'300'000, 150}, {2'000'000, 500}};

TEST(RateBetween, IsKernelsPerSecond) {
  EXPECT_THAT(RateBetween(kSteady, 1'000'000, 2'000'000), Optional(DoubleEq(500)));
  EXPECT_THAT(RateBetween(kSteady, 1'050'000, 1'870'000), Optional(DoubleEq(500)));  // between samples
}

TEST(RateBetween, SeesAChange) {
  const std::vector<Sample> samples = {{0, 0}, {1'000'000, 300}, {2'000'000, 400}};
  EXPECT_THAT(RateBetween(samples, 0, 1'000'000), Optional(DoubleEq(300)));
  EXPECT_THAT(RateBetween(samples, 1'000'000, 2'000'000), Optional(DoubleEq(100)));
}

TEST(RateBetween, SaysNothingAboutTimesWithoutSamples) {
  EXPECT_FALSE(RateBetween(kSteady, 900'000, 1'500'000));
  EXPECT_FALSE(RateBetween(kSteady, 1'500'000, 2'000'001));
  EXPECT_FALSE(RateBetween(kSteady, 1'500'000, 1'500'000));
  EXPECT_FALSE(RateBetween({}, 0, 1));
}

TEST(TenantStory, FollowsTheEvents) {
  TenantStory story;
  story.Take(R"({"event":"ready","time_us":100,"pid":7,"device":"x","iterations":4000})");
  story.Take(R"({"event":"progress","time_us":200,"kernels":8,"busy_us":100})");
  story.Take(R"({"event":"oom","time_us":250,"granted_bytes":1048576,"refused_bytes":65536})");
  EXPECT_TRUE(story.ready);
  EXPECT_EQ(story.iterations, 4000u);
  ASSERT_EQ(story.samples.size(), 2u);
  EXPECT_EQ(story.samples[1].kernels, 8u);
  EXPECT_EQ(story.refused, std::vector<std::uint64_t>{1048576});
  EXPECT_FALSE(story.done);
  story.Take(R"({"event":"done","time_us":300,"kernels":8,"busy_us":100,"verified":true})");
  EXPECT_TRUE(story.done);
  EXPECT_TRUE(story.verified);
}

TEST(TenantStory, KeepsWhatIsNoEvent) {
  TenantStory story;
  story.Take("tessera-tenant: cuInit: CUDA_ERROR_NO_DEVICE");
  EXPECT_EQ(story.complaint, "tessera-tenant: cuInit: CUDA_ERROR_NO_DEVICE");
  EXPECT_FALSE(story.ready);
}

}  // namespace
}  // namespace tessera::cli
