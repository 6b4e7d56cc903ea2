#include "sched/gangs/gangs.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "base/size.h"

namespace tessera::sched {
namespace {

constexpr ResidencyConfig kConfig = {.turn_min = kSecond, .turn_max = 10 * kSecond};

// Vgpu `id` of gang `gang` wants `gib`, of GPUs of 140 GiB.
class GangsTest : public testing::Test {
 protected:
  struct Part {
    VgpuId id;
    GangId gang;
    std::uint64_t gib;
    bool active = true;
    std::uint32_t priority = 8;
  };
  static GangGpu Gpu(std::initializer_list<Part> parts, bool turns = true) {
    GangGpu gpu = {.now = {.turns = turns, .capacity = 140 * kGiB, .wishes = {}}, .gangs = {}};
    for (const Part& part : parts) {
      gpu.now.wishes.push_back({.vgpu = part.id,
                                .priority = part.priority,
                                .demand = part.gib * kGiB,
                                .active = part.active,
                                .ready = true,
                                .move = 100 * kMillisecond});
      gpu.gangs.push_back(part.gang);
    }
    return gpu;
  }
  void Decide(std::vector<GangGpu> gpus, Nanos now) { gangs.Decide(gpus, now); }
  void ExpectTurn(VgpuId id, GangTurn turn, std::initializer_list<std::size_t> on) {
    for (const std::size_t gpu : on) EXPECT_EQ(gangs.TurnOf(gpu, id), turn) << "vGPU " << id << ", GPU " << gpu;
  }

  Gangs gangs{kConfig};
};

TEST_F(GangsTest, OneGangHasTheTurnOnBothGpusWhateverTheOrderOfTheirPrograms) {
  const std::vector<GangGpu> gpus = {Gpu({{1, 7, 100}, {2, 8, 100}}), Gpu({{2, 8, 100}, {1, 7, 100}})};
  Decide(gpus, 0);
  ExpectTurn(1, GangTurn::kHas, {0, 1});
  ExpectTurn(2, GangTurn::kWaits, {0, 1});
  EXPECT_EQ(gangs.WaitsSince(1, 2), 0);
  EXPECT_EQ(gangs.WaitsSince(0, 1), std::nullopt);
  EXPECT_EQ(gangs.NextDeadline(), kSecond);
  Decide(gpus, kSecond);
  ExpectTurn(1, GangTurn::kWaits, {0, 1});
  ExpectTurn(2, GangTurn::kHas, {0, 1});
  EXPECT_EQ(gangs.WaitsSince(0, 1), kSecond);
}

TEST_F(GangsTest, AJobOnOneGpuRunsWhileTheGangWaitsForTheOtherGpu) {
  // 3 has the turn on GPU 0 first: the gang waits, and 4 has GPU 1 meanwhile.
  Decide({Gpu({{1, 7, 100, false}, {3, kNoGang, 100}}), Gpu({{1, 7, 100, false}, {4, kNoGang, 100, false}})}, 0);
  const std::vector<GangGpu> all = {Gpu({{1, 7, 100}, {3, kNoGang, 100}}), Gpu({{1, 7, 100}, {4, kNoGang, 100}})};
  Decide(all, 1);
  ExpectTurn(1, GangTurn::kWaits, {0, 1});
  ExpectTurn(3, GangTurn::kHas, {0});
  ExpectTurn(4, GangTurn::kHas, {1});
  Decide(all, 1 + kSecond);  // the turns of 3 and of 4 are over
  ExpectTurn(1, GangTurn::kHas, {0, 1});
  ExpectTurn(3, GangTurn::kWaits, {0});
  ExpectTurn(4, GangTurn::kWaits, {1});
}

TEST_F(GangsTest, TheGpuDecidesWhereNoGangTakesTurnsOnAnother) {
  Decide({Gpu({{1, 7, 100}, {2, 8, 100}}), Gpu({{1, 7, 100}}, /*turns=*/false), Gpu({{3, kNoGang, 100}})}, 0);
  ExpectTurn(1, GangTurn::kOpen, {0, 1});
  ExpectTurn(2, GangTurn::kOpen, {0});
  ExpectTurn(3, GangTurn::kOpen, {2});
}

TEST_F(GangsTest, AGpuThatAGangDoesNotUseForLongIsForOthers) {
  const auto gpus = [](bool works, bool other = true) {
    return std::vector<GangGpu>{Gpu({{1, 7, 100}, {2, 8, 100, false}}),
                                Gpu({{1, 7, 100, works}, {2, 8, 100, false}, {3, kNoGang, 100, other}})};
  };
  Decide(gpus(true, false), 0);
  ExpectTurn(1, GangTurn::kHas, {0, 1});
  Decide(gpus(false), 1);
  ExpectTurn(3, GangTurn::kWaits, {1});
  Decide(gpus(false), 2 + Gangs::kAway);
  ExpectTurn(3, GangTurn::kHas, {1});
  ExpectTurn(1, GangTurn::kHas, {0});
}

TEST_F(GangsTest, AHigherClassGoesFirstOnAllItsGpus) {
  const GangGpu gpu = Gpu({{1, 7, 100}, {2, 8, 100, false, 2}});
  Decide({gpu, gpu}, 0);
  ExpectTurn(1, GangTurn::kHas, {0, 1});
  Decide({Gpu({{1, 7, 100}, {2, 8, 100, true, 2}}), gpu}, 1);
  ExpectTurn(2, GangTurn::kHas, {0, 1});
  ExpectTurn(1, GangTurn::kWaits, {0, 1});
}

TEST_F(GangsTest, AGangThatIsNeverReadyHasItsTurnAndNoMore) {
  std::vector<GangGpu> gpus = {Gpu({{1, 7, 100}, {2, 8, 100}}), Gpu({{1, 7, 100}, {2, 8, 100}})};
  gpus[1].now.wishes[0].ready = false;
  Decide(gpus, 0);
  EXPECT_EQ(gangs.NextDeadline(), Gangs::kLongestStart);
  Decide(gpus, Gangs::kLongestStart);
  ExpectTurn(1, GangTurn::kHas, {0, 1});
  Decide(gpus, Gangs::kLongestStart + kSecond);
  ExpectTurn(2, GangTurn::kHas, {0, 1});
}

}  // namespace
}  // namespace tessera::sched
