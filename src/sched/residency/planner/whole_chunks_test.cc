// How chunks with holes come back: whole, but where room is short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/testing/same_cases.h"
#include "sched/testing/any_number.h"
#include "sched/testing/residency_world.h"

namespace tessera::sched {
namespace {

using testing::IsEmpty;

constexpr std::uint64_t kChunk = 64ull << 20;
constexpr std::uint64_t kUnit = 2ull << 20;

// A GPU of 400 chunks. Each program has a vGPU of its own, and the same hole in each of its chunks.
class WholeChunks {
 public:
  WholeChunks() { world.state.chunk = kChunk; }

  void Add(ProcessId id, std::uint64_t chunks, std::uint64_t hole, std::optional<std::uint64_t> limit = {}) {
    VGpuResidence& vgpu = world.AddVGpu(static_cast<VgpuId>(id));
    if (limit) vgpu.limit = *limit * kChunk;
    world.AddProcess(static_cast<VgpuId>(id), id);
    world.programs.at(id).hole = hole;
    AddOut(id, chunks);
    world.Work(id, true);
  }
  // Chunks that are out.
  void AddOut(ProcessId id, std::uint64_t chunks) {
    ProcessResidence& process = world.Process(id);
    const std::uint64_t hole = world.programs.at(id).hole;
    process.allocated += chunks * (kChunk - hole);
    process.swapped += chunks * (kChunk - hole);
    process.holes_out += chunks * hole;
    process.unsafe = process.stopped = process.still = true;
  }
  std::size_t Whole(ProcessId id) { return world.programs.at(id).came_whole; }
  std::size_t Sparse(ProcessId id) { return world.programs.at(id).came_sparse; }
  std::uint64_t Out(ProcessId id) { return world.Process(id).swapped; }

  ResidencyWorld world{400 * kChunk};
};

class WholeChunksTest : public testing::Test, protected WholeChunks {
 protected:
  ~WholeChunksTest() override { EXPECT_THAT(world.violations(), IsEmpty()); }
};

TEST_F(WholeChunksTest, OneThatFitsComesBackWhole) {
  Add(1, 399, 3 * kUnit);
  world.Finish();
  EXPECT_EQ(Whole(1), 399u);
  EXPECT_EQ(Sparse(1), 0u);
  EXPECT_EQ(Out(1), 0u);
}

TEST_F(WholeChunksTest, TwoThatTakeTurnsMoveWholeChunks) {
  Add(1, 300, kUnit);
  Add(2, 300, 2 * kUnit);
  world.Run(60 * kSecond);
  EXPECT_TRUE(world.planner().TakesTurns());
  EXPECT_GT(Whole(1), 1000u);
  EXPECT_GT(Whole(2), 1000u);
  EXPECT_EQ(Sparse(1) + Sparse(2), 0u);
  EXPECT_GT(world.programs.at(1).ran, 20 * kSecond);
  EXPECT_GT(world.programs.at(2).ran, 20 * kSecond);
}

TEST_F(WholeChunksTest, OneThatWorksHasWholeChunksBeforeOneThatRestsKeepsItsMemory) {
  Add(1, 300, kUnit);
  world.Finish();
  world.Work(1, false);
  Add(2, 300, kUnit);
  world.Finish();
  EXPECT_EQ(Whole(2), 300u);
  EXPECT_EQ(Sparse(2), 0u);
}

TEST_F(WholeChunksTest, OnlyAsManyComeWithoutTheirHolesAsALimitAsks) {
  Add(1, 17, kChunk / 4, 16);
  world.Finish();
  EXPECT_EQ(Out(1), 0u);
  EXPECT_EQ(Sparse(1), 4u) << "their holes make one chunk";
  EXPECT_EQ(Whole(1), 13u);
  EXPECT_FALSE(world.Process(1).stopped);
}

// Room for it comes by and by, as the other one's memory goes.
TEST_F(WholeChunksTest, NorDoMoreWhereItTakesTurns) {
  Add(1, 404, kUnit);  // 128 have to be sparse
  Add(2, 300, kUnit);
  world.Run(60 * kSecond);
  EXPECT_TRUE(world.planner().TakesTurns());
  EXPECT_EQ(Sparse(2), 0u);
  EXPECT_GT(Sparse(1), 2 * 128u);
  for (int looks = 0; looks < 1000; ++looks) {
    world.Run(20 * kMillisecond);
    ASSERT_LE(world.programs.at(1).sparse, 132u);
  }
  world.RemoveProcess(2);
  world.Run(5 * kSecond);
  EXPECT_EQ(Out(1), 0u);
}

TEST_F(WholeChunksTest, ThoseThatFitTogetherWithoutHolesDoNotTakeTurns) {
  Add(1, 210, kUnit);
  Add(2, 195, kUnit);
  world.Run(60 * kSecond);
  EXPECT_EQ(Out(1) + Out(2), 0u);
  EXPECT_FALSE(world.Process(1).stopped || world.Process(2).stopped);
  EXPECT_GT(Sparse(1) + Sparse(2), 0u);
  const std::size_t moved = Whole(1) + Whole(2) + Sparse(1) + Sparse(2);
  EXPECT_LT(moved, 1000u) << "it came in, and stayed";
}

TEST_F(WholeChunksTest, OneThatDoesNotFitAtAllHasWholeChunks) {
  Add(1, 600, 2 * kUnit);
  world.Finish();
  EXPECT_EQ(Sparse(1), 0u);
  EXPECT_EQ(Whole(1), 400u);
  EXPECT_FALSE(world.Process(1).stopped) << "it goes on with the rest in host memory";
}

TEST_F(WholeChunksTest, APromiseThatHoldsAllIsNoReasonForSparseChunks) {
  Add(1, 100, kUnit);
  world.VGpu(1).request = 100 * (kChunk - kUnit);
  world.Finish();
  EXPECT_EQ(Whole(1), 100u);
  EXPECT_EQ(Sparse(1), 0u);
}

// Programs that fit with whole chunks, all together or one at a time, make no others.
RC_GTEST_PROP(WholeChunksProperty, NoChunkIsSparseWhereRoomIsNotShort, ()) {
  WholeChunks any;
  const bool together = Number(0, 1) == 1;
  const auto count = Number<ProcessId>(1, together ? 5 : 3);
  for (ProcessId id = 1; id <= count; ++id) {
    const std::uint64_t hole = Number<std::uint64_t>(0, together ? 31 : 3) * kUnit;
    const auto chunks = together ? Number<std::uint64_t>(1, 400 / count) : Number<std::uint64_t>(240, 400);
    any.Add(id, chunks, hole, Number(0, 2) == 0 ? std::optional(chunks + Number<std::uint64_t>(0, 9)) : std::nullopt);
    if (together && Number(0, 2) == 0) any.world.VGpu(static_cast<VgpuId>(id)).request = chunks * kUnit;
  }
  for (int step = Number(1, 6); step > 0; --step) {
    any.world.Run(Number<Nanos>(1, 4) * kSecond);
    const auto id = Number<ProcessId>(1, count);
    if (Number(0, 1) == 0) any.world.Work(id, !any.world.programs.at(id).works);
    if (Number(0, 2) == 0) any.world.Process(id).push = Number<std::uint64_t>(1, 400) * kChunk;
  }
  any.world.Finish();
  RC_ASSERT(any.world.violations() == std::vector<std::string>{});
  for (ProcessId id = 1; id <= count; ++id) RC_ASSERT(any.Sparse(id) == 0);
}

}  // namespace
}  // namespace tessera::sched
