#include "cli/top/model/top_snapshot.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::cli::top {
using client::Json;

namespace {

TEST(Read, WhatIsMissingOrOddIsNought) {
  const Json odd = {{"time_us", "now"}, {"gpus", {1, nullptr, "x"}}, {"vgpus", {{{"name", 7}, {"frozen", "yes"}}}}};
  const Snapshot snapshot = Read(odd, 5);
  EXPECT_EQ(snapshot.at, 5);
  EXPECT_EQ(snapshot.gpus.size(), 3u);
  EXPECT_EQ(snapshot.gpus[0].total, 0u);
  ASSERT_EQ(snapshot.vgpus.size(), 1u);
  EXPECT_EQ(snapshot.vgpus[0].name, "");
  EXPECT_FALSE(snapshot.vgpus[0].priority);
  EXPECT_TRUE(snapshot.processes.empty());
  EXPECT_TRUE(Read(nullptr, 0).gpus.empty());
}

TEST(Read, OnlyWhatAnOperatorFrozeIsFrozen) {
  const Json answers = {
      {"vgpus",
       {{{"name", "a"}, {"state", "waiting"}, {"frozen", {"policy"}}},
        {{"name", "b"}, {"state", "idle"}, {"frozen", {"policy", "operator"}}}}},
      {"processes", {{{"pid", 1}, {"state", "active"}, {"frozen", {"operator"}}, {"vgpu", nullptr}}}}};
  const Snapshot snapshot = Read(answers, 1);
  EXPECT_EQ(snapshot.vgpus[0].state, "waiting");
  EXPECT_EQ(snapshot.vgpus[1].state, "frozen");
  EXPECT_EQ(snapshot.processes[0].state, "frozen");
  EXPECT_EQ(snapshot.processes[0].vgpu, "");
  EXPECT_FALSE(snapshot.processes[0].busy_us);
}

TEST(Read, SwapIsPoolAndFile) {
  const Json answers = {
      {"gpus",
       {{{"index", 1},
         {"swap",
          {{"pool_used_bytes", 1}, {"pool_bytes", 6}, {"max_bytes", 10}, {"file_used_bytes", 2}, {"file_bytes", 20}}}},
        {{"index", 2}, {"swap", nullptr}}}}};
  const Snapshot snapshot = Read(answers, 1);
  EXPECT_TRUE(snapshot.gpus[0].swaps);
  EXPECT_EQ(snapshot.gpus[0].swap_used, 3u);
  EXPECT_EQ(snapshot.gpus[0].swap_max, 30u);
  EXPECT_EQ(snapshot.gpus[0].swap_prepared, 5u);
  EXPECT_FALSE(snapshot.gpus[1].swaps);
}

}  // namespace
}  // namespace tessera::cli::top
