#include "sched/residency/squeeze.h"

#include <gtest/gtest.h>

namespace tessera::sched {
namespace {

constexpr std::uint64_t kChunk = 64ull << 20;

class SqueezeTest : public testing::Test {
 protected:
  SqueezeTest() {
    state_.pool.most = 100 * kChunk;
    vgpu_.processes.push_back(
        {.id = 1, .room = 80 * kChunk, .holes = 30 * kChunk, .holed = 60 * kChunk, .has_line = true});
  }
  std::uint64_t Step(std::uint64_t lacking) const {
    return SqueezeStep(state_, vgpu_, vgpu_.processes[0], lacking) / kChunk;
  }

  ResidencyState state_;
  VGpuResidence vgpu_;
};

TEST_F(SqueezeTest, AsManyChunksGoAsTheirHolesSuffice) {
  EXPECT_EQ(Squeezable(state_, vgpu_, 0), 30 * kChunk);
  EXPECT_EQ(Step(kChunk), 2u);
  EXPECT_EQ(Step(1), 1u);
  EXPECT_EQ(Step(5 * kChunk), 10u);
  EXPECT_EQ(Step(30 * kChunk), 16u) << "the others follow";
}

TEST_F(SqueezeTest, NoMoreGoThanThereIsHostMemoryFor) {
  state_.pool.used = 95 * kChunk;
  EXPECT_EQ(Step(30 * kChunk), 5u);
  vgpu_.swap = 3 * kChunk;
  EXPECT_EQ(Step(30 * kChunk), 3u);
  EXPECT_TRUE(MaySqueeze(state_, vgpu_, 0));
  vgpu_.swap = kChunk;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 0));
  vgpu_.swap.reset();
  state_.pool.used = 99 * kChunk;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 0));
  EXPECT_EQ(Squeezable(state_, vgpu_, 0), 0u);
}

TEST_F(SqueezeTest, WhereNothingCanBeMovedHolesStay) {
  state_.mover_hopeless = true;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 0));
  state_.mover_hopeless = false;
  state_.pool.full_until = 5;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 4));
  EXPECT_TRUE(MaySqueeze(state_, vgpu_, 5));
  state_.pool.most = 0;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 5));
  state_.pool.most = 100 * kChunk;
  vgpu_.processes[0].has_line = false;
  EXPECT_EQ(Squeezable(state_, vgpu_, 5), 0u);
}

}  // namespace
}  // namespace tessera::sched
