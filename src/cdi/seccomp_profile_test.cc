#include "cdi/seccomp_profile.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

namespace tessera::cdi {
namespace {

constexpr std::array<std::uint32_t, 4> kNumbers = {0x29, 0x2a, 0x2b, 0xd3};

Json Profile(const char* base) {
  auto profile =
      SeccompProfile(Json::parse(base), {.socket = "/run/tessera/seccomp.sock", .vgpus = "a", .numbers = kNumbers});
  return profile ? *profile : Json(profile.error().message);
}

// What the rules do with an ioctl of this number: each must say one thing.
std::string ActionFor(const Json& profile, std::uint32_t request) {
  std::set<std::string> actions;
  for (const Json& rule : profile["syscalls"]) {
    if (rule["names"] != Json({"ioctl"})) continue;
    const Json& arg = rule["args"][0];
    if ((request & arg["value"].get<std::uint32_t>()) == arg["valueTwo"]) actions.insert(rule["action"]);
  }
  return actions.size() == 1 ? *actions.begin() : std::to_string(actions.size()) + " actions";
}

TEST(SeccompProfile, HoldsWhatTheGateDecidesAndAllowsTheRest) {
  const Json profile = Profile(R"({"defaultAction": "SCMP_ACT_ERRNO", "archMap": [1], "syscalls": [
      {"names": ["ioctl"], "action": "SCMP_ACT_ALLOW"}, {"names": ["read", "ioctl"], "action": "SCMP_ACT_ALLOW"}]})");
  EXPECT_EQ(profile["listenerPath"], "/run/tessera/seccomp.sock");
  EXPECT_EQ(profile["listenerMetadata"], "a");
  EXPECT_EQ(profile["archMap"], Json({1}));
  EXPECT_EQ(profile["syscalls"][0]["names"], Json({"read"}));
  for (std::uint32_t number = 0; number < 256; ++number) {
    const bool held = std::ranges::find(kNumbers, number) != kNumbers.end();
    EXPECT_EQ(ActionFor(profile, 0xc0304600 | number), held ? "SCMP_ACT_NOTIFY" : "SCMP_ACT_ALLOW") << number;
  }
}

TEST(SeccompProfile, WhatIsAllowedAnywayIsNotSaid) {
  const Json profile = Profile(R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []})");
  EXPECT_EQ(profile["syscalls"].size(), kNumbers.size());
}

TEST(SeccompProfile, OtherFilesAreRefused) {
  EXPECT_NE(Profile("[]").get<std::string>().find("defaultAction"), std::string::npos);
  EXPECT_NE(Profile(R"({"defaultAction": "x", "syscalls": [3]})").get<std::string>().find("names"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cdi
