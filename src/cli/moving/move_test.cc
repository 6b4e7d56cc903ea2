#include "cli/moving/move.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using client::Json;

const Json kSuspensions = Json::array({{{"pid", 5}, {"phase", "drains"}}});

Json Process(const Json& phase, const Json& left = {}, const Json& to = {}, const Json& error = {}) {
  return {{"pid", 5},
          {"suspension", phase},
          {"suspension_left_bytes", left},
          {"suspended_to", to},
          {"suspend_error", error}};
}

SuspensionStanding Standing(const Json& process, Way way) {
  return StandingOf(kSuspensions, Json::array({process}), way);
}

TEST(PhaseText, SaysWhatIsLeft) {
  EXPECT_EQ(PhaseText(Process("leaves", 3ull << 30)), "its memory goes to host memory, 3 GiB left");
  EXPECT_EQ(PhaseText(Process("reads", 64 << 20)), "the file is read, 64 MiB left");
  EXPECT_EQ(PhaseText(Process("saves")), "the driver saves the rest");
  EXPECT_EQ(PhaseText(Process(nullptr)), "");
}

TEST(SuspensionStanding, DoneWhenItIsWhereItShouldBe) {
  EXPECT_TRUE(Standing(Process("suspended"), Way::kToMemory).done);
  EXPECT_FALSE(Standing(Process("suspended", {}, "memory"), Way::kToFile).done);
  EXPECT_TRUE(Standing(Process("suspended", {}, "file"), Way::kToFile).done);
  EXPECT_TRUE(Standing(Process(nullptr), Way::kBack).done);
  EXPECT_TRUE(StandingOf(kSuspensions, Json::array(), Way::kToMemory).done) << "it has ended";
}

TEST(SuspensionStanding, OnItsWay) {
  const auto standing = Standing(Process("files", 64 << 20, {}, "an earlier one failed"), Way::kToFile);
  EXPECT_FALSE(standing.done);
  EXPECT_EQ(standing.phase, "what it has in host memory goes to a file, 64 MiB left");
  EXPECT_EQ(standing.error, "");
}

TEST(SuspensionStanding, WhatStoppedHasAReason) {
  EXPECT_EQ(Standing(Process(nullptr, {}, {}, "busy"), Way::kToMemory).error, "busy");
  EXPECT_EQ(Standing(Process("suspended", {}, "memory", "no room"), Way::kBack).error, "no room");
  EXPECT_EQ(Standing(Process("suspended", {}, "memory", "the disk is full"), Way::kToFile).error, "the disk is full");
}

}  // namespace
}  // namespace tessera::cli
