#include "kubernetes/claims/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/testing/temporary_folder.h"
#include "kubernetes/claims/claim_preparer.h"
#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/checkpoint.json"; }

  const TemporaryFolder folder_;
  const PreparedClaim claim_{
      .namespace_name = "team",
      .name = "llm",
      .complete = true,
      .kernel_gate = true,
      .key = "0123456789abcdef",
      .change = "{}",
      .devices = {{.request = "gpu", .pool = "node", .device = "gpu-1", .share_id = "s", .vgpu = "team.llm.u"}}};
};

TEST_F(CheckpointTest, WhatIsPutIsThereAfterARestart) {
  auto checkpoint = Checkpoint::Read(Path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().Text();
  EXPECT_TRUE(checkpoint->claims().empty());
  ASSERT_TRUE(checkpoint->Put("u", claim_));
  ASSERT_TRUE(checkpoint->Put("v", {.namespace_name = "team", .name = "x", .devices = {}}));
  ASSERT_TRUE(checkpoint->Remove("v"));
  ASSERT_TRUE(checkpoint->Remove("never")) << "it is gone, too";
  const auto again = Checkpoint::Read(Path());
  ASSERT_TRUE(again) << again.error().Text();
  ASSERT_TRUE(again->Find("u"));
  EXPECT_EQ(*again->Find("u"), claim_);
  EXPECT_EQ(again->Find("v"), nullptr);
}

TEST_F(CheckpointTest, AFailureChangesNothing) {
  auto checkpoint = Checkpoint::Read(Path());
  ASSERT_TRUE(checkpoint->Put("u", claim_));
  std::filesystem::remove_all(folder_.path());
  EXPECT_FALSE(checkpoint->Remove("u"));
  EXPECT_TRUE(checkpoint->Find("u"));
}

TEST_F(CheckpointTest, AFileThatIsNotWholeIsNoCheckpoint) {
  const std::string right = FormatCheckpoint({{"u", claim_}});
  ASSERT_TRUE(ParseCheckpoint(right));
  for (const std::string& text : {std::string(), std::string("{}"), right.substr(0, right.size() / 2)})
    EXPECT_EQ(ParseCheckpoint(text).error().code, EBADMSG);
  std::string other = right;
  other.replace(other.find("llm"), 3, "abc");
  EXPECT_NE(ParseCheckpoint(other).error().message.find("checksum"), std::string::npos);
  std::ofstream(Path()) << other;
  EXPECT_NE(Checkpoint::Read(Path()).error().Text().find(Path()), std::string::npos);
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text = right;
    text[random() % text.size()] = static_cast<char>(random());
    const auto claims = ParseCheckpoint(text);
    if (claims) EXPECT_EQ(claims->at("u"), claim_) << "only blanks may differ";
  }
}

// Names of vGPUs.

TEST(VGpuName, FitsAndTellsItsClaim) {
  const std::string uid = "01234567-89ab-cdef-0123-456789abcdef";
  Claim claim{.namespace_name = "team", .name = "llm", .uid = uid, .devices = {}, .parameters = {}};
  EXPECT_EQ(VGpuNameFor(claim, 0), "team.llm." + uid);
  EXPECT_EQ(VGpuNameFor(claim, 1), "team.llm." + uid + "-1");
  claim.name = std::string(253, 'x');
  for (const std::size_t device : {0u, 1u, 127u}) {
    const std::string name = VGpuNameFor(claim, device);
    EXPECT_LE(name.size(), 58u);
    EXPECT_EQ(UidIn(name), uid) << name;
  }
  for (const char* name : {"", "team", "a.b", ".01234567-89ab-cdef-0123-456789abcdef",
                           "a.01234567-89ab-cdef-0123-456789abcdeF", "a.01234567-89ab-cdef-0123-456789abcdef-x"})
    EXPECT_EQ(UidIn(name), "") << name;
}

}  // namespace
}  // namespace tessera::kubernetes
