#include "server/record/trace_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/testing/temporary_folder.h"
#include "server/record/trace.h"

namespace tessera::server {
namespace {

class TraceRingTest : public testing::Test {
 protected:
  const TemporaryFolder dir_;
};

TEST_F(TraceRingTest, KeepsTheLastOnes) {
  auto ring = TraceRing::Make("");
  ASSERT_TRUE(ring);
  (*ring)->Note({.at = 10, .value = 1, .kind = TraceKind::kSlice});
  (*ring)->Note({.at = 20, .value = 2, .kind = TraceKind::kSlice});
  TraceCopy copy = (*ring)->Copy(0);
  ASSERT_EQ(copy.records.size(), 2u);
  EXPECT_TRUE(copy.whole);
  copy = (*ring)->Copy(15);
  ASSERT_EQ(copy.records.size(), 1u);
  EXPECT_EQ(copy.records[0].value, 2u);
  for (std::size_t i = 0; i < TraceRing::kRecords; ++i)
    (*ring)->Note({.at = static_cast<Nanos>(100 + i), .value = i, .kind = TraceKind::kSlice});
  copy = (*ring)->Copy(0);
  EXPECT_EQ(copy.records.size(), TraceRing::kRecords);
  EXPECT_EQ(copy.records.front().value, 0u);
  EXPECT_EQ(copy.records.back().value, TraceRing::kRecords - 1);
  EXPECT_FALSE(copy.whole) << "the first two are overwritten";
  EXPECT_TRUE((*ring)->Copy(101).whole) << "but nothing of what came since then";
}

TEST_F(TraceRingTest, KnowsNames) {
  auto ring = TraceRing::Make("");
  ASSERT_TRUE(ring);
  (*ring)->NameVGpu(7, "team-a");
  (*ring)->NameProgram(7, "python");
  (*ring)->NameProgram(8, std::string(200, 'x'));
  const TraceCopy copy = (*ring)->Copy(0);
  EXPECT_EQ(copy.vgpus.at(7), "team-a");
  EXPECT_EQ(copy.programs.at(7), "python");
  EXPECT_EQ(copy.programs.at(8), std::string(51, 'x'));
  EXPECT_EQ(copy.vgpus.count(8), 0u);
}

TEST_F(TraceRingTest, AFileOutlivesItsDaemon) {
  const std::string path = dir_.path() + "/trace.ring";
  {
    auto ring = TraceRing::Make(path);
    ASSERT_TRUE(ring);
    (*ring)->Note({.at = 10, .vgpu = 3, .kind = TraceKind::kStanding});
    (*ring)->NameVGpu(3, "team-a");
  }
  struct stat state{};
  ASSERT_EQ(stat(path.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
  const auto loaded = TraceRing::Load(path);
  ASSERT_TRUE(loaded) << loaded.error().Text();
  ASSERT_EQ(loaded->records.size(), 1u);
  EXPECT_EQ(loaded->vgpus.at(3), "team-a");
  EXPECT_EQ(loaded->now, 10);
}

TEST_F(TraceRingTest, WhatIsNoTraceIsRefused) {
  const std::string path = dir_.path() + "/trace.ring";
  EXPECT_EQ(TraceRing::Load(path).error().code, ENOENT);
  std::ofstream(path) << "no trace";
  EXPECT_EQ(TraceRing::Load(path).error().code, EBADMSG);
  ASSERT_EQ(truncate(path.c_str(), 8 << 20), 0);
  EXPECT_EQ(TraceRing::Load(path).error().code, EBADMSG);
  EXPECT_FALSE(TraceRing::Make(dir_.path() + "/none/trace.ring"));
}

TEST_F(TraceRingTest, WhoDidNotEndInOrderIsFoundByTheNextDaemon) {
  trace::Begin(dir_.path());
  trace::Note({.at = 5, .kind = TraceKind::kSlice});
  trace::Begin(dir_.path());  // as if the first one had been killed
  EXPECT_EQ(trace::Copy(0).records.size(), 0u);
  auto last = TraceRing::Load(dir_.path() + trace::kLastFile);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->records.size(), 1u);
  trace::Note({.at = 6, .kind = TraceKind::kSlice});
  trace::Note({.at = 7, .kind = TraceKind::kSlice});
  ASSERT_TRUE(trace::SaveLast(dir_.path(), trace::Bytes()));
  last = TraceRing::Load(dir_.path() + trace::kLastFile);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->records.size(), 2u);
  trace::End();
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + trace::kFile));
  EXPECT_EQ(trace::Bytes(), "");
  trace::Note({.at = 8, .kind = TraceKind::kSlice});  // nothing, and no crash
}

}  // namespace
}  // namespace tessera::server
