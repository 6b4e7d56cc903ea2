#include "shim/session/space_environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/testing/comma_locale.h"

namespace tessera::shim {
namespace {

constexpr const char* kPipes = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kPercentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

class SpaceEnvironmentTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv(kPipes);
    unsetenv(kPercentage);
  }
  void TearDown() override { SetUp(); }

  static wire::Welcome Terms(double sm_pct) {
    wire::Welcome terms;
    wire::SetText(terms.space, "a");
    wire::SetText(terms.mps_pipes, "/run/a/pipe");
    terms.sm_limit = static_cast<std::uint32_t>(sm_pct * 100);
    return terms;
  }
  static bool Has(const std::string& why, const std::string& part) { return why.find(part) != std::string::npos; }
};

TEST_F(SpaceEnvironmentTest, OutsideOfSpacesAnythingGoes) {
  EXPECT_EQ(WhyNotInSpace({}), "");
  setenv(kPipes, "/anywhere", 1);
  setenv(kPercentage, "nonsense", 1);
  EXPECT_EQ(WhyNotInSpace({}), "");
}

TEST_F(SpaceEnvironmentTest, TheDirectoryIsTheSpaces) {
  EXPECT_TRUE(Has(WhyNotInSpace(Terms(100)), "the vGPU is in space a, and CUDA_MPS_PIPE_DIRECTORY is not /run/a/pipe"));
  for (const char* other : {"", "/run/b/pipe", "/run/a/pipe/", "/run/a/pip"}) {
    setenv(kPipes, other, 1);
    EXPECT_TRUE(Has(WhyNotInSpace(Terms(100)), kPipes)) << other;
  }
  setenv(kPipes, "/run/a/pipe", 1);
  EXPECT_EQ(WhyNotInSpace(Terms(100)), "");
}

TEST_F(SpaceEnvironmentTest, ThePercentageIsTheVgpus) {
  setenv(kPipes, "/run/a/pipe", 1);
  const std::string missing = WhyNotInSpace(Terms(33.5));
  EXPECT_TRUE(Has(missing, "33.5 % of the SMs")) << missing;
  EXPECT_TRUE(Has(missing, kPercentage)) << missing;
  EXPECT_TRUE(Has(missing, "tessera run")) << "it says what to do";
  for (const char* other : {"", "33", "34", "100", "-33.5", "nonsense", "33.52"}) {
    setenv(kPercentage, other, 1);
    EXPECT_NE(WhyNotInSpace(Terms(33.5)), "") << other;
  }
  for (const char* same : {"33.5", "33.50", "33.501"}) {
    setenv(kPercentage, same, 1);
    EXPECT_EQ(WhyNotInSpace(Terms(33.5)), "") << same;
  }
  setenv(kPercentage, "50", 1);
  EXPECT_NE(WhyNotInSpace(Terms(100)), "") << "fewer SMs than it should have";
}

// Whatever the driver makes of the rest.
TEST_F(SpaceEnvironmentTest, WhatIsNoNumberIsNoPercentage) {
  setenv(kPipes, "/run/a/pipe", 1);
  for (const char* other : {"50x", "50%", "50,0", "50.0.0", "0x32", "+50", " 50", "50 ", ".", "50e0", "nan", "inf"}) {
    setenv(kPercentage, other, 1);
    EXPECT_NE(WhyNotInSpace(Terms(50)), "") << other;
  }
  setenv(kPercentage, (std::string(400, '9') + ".5").c_str(), 1);
  EXPECT_NE(WhyNotInSpace(Terms(50)), "");
}

TEST_F(SpaceEnvironmentTest, TheProgramsLocaleDoesNotMatter) {
  const CommaLocale comma;
  setenv(kPipes, "/run/a/pipe", 1);
  setenv(kPercentage, "33.5", 1);
  EXPECT_EQ(WhyNotInSpace(Terms(33.5)), "");
}

}  // namespace
}  // namespace tessera::shim
