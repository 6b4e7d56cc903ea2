#include "face/text/request_bodies.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera::face {
namespace {

TEST(VGpuRequests, HaveLabelsOrTakeThemAway) {
  EXPECT_FALSE(ParseVGpuRequest("{}")->labels);
  EXPECT_EQ(ParseVGpuRequest(R"({"labels": {"team": "a", "pod": "b"}})")->labels,
            (server::Labels{{"team", "a"}, {"pod", "b"}}));
  for (const char* none : {R"({"labels": null})", R"({"labels": {}})"})
    EXPECT_EQ(ParseVGpuRequest(none)->labels, server::Labels()) << none;
  for (const char* wrong : {R"({"labels": "team=a"})", R"({"labels": [["team", "a"]]})", R"({"labels": {"team": 1}})",
                            R"({"labels": {"team": null}})", R"({"labels": {"team": {}}})", R"({"labels": true})"}) {
    const auto refused = ParseVGpuRequest(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, EINVAL);
    EXPECT_NE(refused.error().message.find("labels"), std::string::npos) << refused.error().message;
  }
}

TEST(SpaceRequests, HaveANameAndPerhapsAGpu) {
  const auto asked = ParseSpaceRequest(R"({"name": "a", "gpu": 1})");
  ASSERT_TRUE(asked) << asked.error().Text();
  EXPECT_EQ(asked->name, "a");
  EXPECT_EQ(asked->gpu, "1");
  EXPECT_EQ(ParseSpaceRequest(R"({"name": "a", "gpu": "auto"})")->gpu, "auto");
  EXPECT_FALSE(ParseSpaceRequest(R"({"name": "a"})")->gpu);
  for (const char* wrong :
       {"", "[]", R"({"name": 1})", R"({"name": "a", "sm_limit": 5})", R"({"name": "a", "gpu": []})"}) {
    const auto refused = ParseSpaceRequest(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, EINVAL) << wrong;
  }
}

}  // namespace
}  // namespace tessera::face
