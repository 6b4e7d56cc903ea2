#include "kubernetes/pods/asked_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::kubernetes {
namespace {

using client::Json;

Json Pod() {
  return {{"metadata",
           {{"name", "web-0"}, {"namespace", "team"}, {"annotations", {{kConfigAnnotation, R"({"goal":"none"})"}}}}},
          {"spec",
           {{"resourceClaims",
             {{{"name", "a"}, {"resourceClaimName", "shared"}}, {{"name", "b"}, {"resourceClaimTemplateName", "t"}}}}}},
          {"status", {{"phase", "Running"}}}};
}

std::vector<std::string> ClaimsOf(const Json& pod) {
  std::vector<std::string> claims;
  for (const AskedChange& each : ChangesAskedBy(pod)) claims.push_back(each.claim);
  return claims;
}

TEST(AskedChange, OfEachClaimThatHasAnObject) {
  Json pod = Pod();
  EXPECT_THAT(ChangesAskedBy(pod),
              testing::ElementsAre(AskedChange{
                  .namespace_name = "team", .claim = "shared", .pod = "web-0", .config = R"({"goal":"none"})"}));
  pod["status"]["resourceClaimStatuses"] = {{{"name", "b"}, {"resourceClaimName", "web-0-b-x7"}}};
  pod["status"]["extendedResourceClaimStatus"] = {{"resourceClaimName", "web-0-extended"}};
  EXPECT_THAT(ClaimsOf(pod), testing::ElementsAre("shared", "web-0-b-x7", "web-0-extended"));
}

TEST(AskedChange, NotOfOthers) {
  Json pod = Pod();
  pod["status"]["phase"] = "Succeeded";
  EXPECT_THAT(ClaimsOf(pod), testing::IsEmpty());
  pod = Pod();
  pod["metadata"].erase("annotations");
  EXPECT_THAT(ClaimsOf(pod), testing::IsEmpty());
  EXPECT_THAT(ClaimsOf(Json()), testing::IsEmpty());
  pod = Pod();
  pod["spec"]["resourceClaims"] = 5;
  pod["status"] = "x";
  EXPECT_THAT(ClaimsOf(pod), testing::IsEmpty());
}

}  // namespace
}  // namespace tessera::kubernetes
