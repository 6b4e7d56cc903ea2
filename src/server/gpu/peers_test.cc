#include "server/gpu/peers.h"

#include <gtest/gtest.h>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

// A second GPU, with a vGPU, beside the one of SteeredGpuTest. Gates divide its time.
class PeersTest : public SteeredGpuTest {
 protected:
  void SetUp() override {
    SteeredGpuTest::SetUp();
    there_.id = 50;
    there_.gpu = 1;
    ASSERT_TRUE(second_.Add(there_, Now()));
    peers_.Add(gpu_);
    peers_.Add(second_);
  }
  void TearDown() override {
    for (auto& process : second_processes_) second_.Leave(*process, Now());
    SteeredGpuTest::TearDown();
  }

  // The program's process on the second GPU.
  Process& Second(pid_t pid) {
    second_processes_.push_back(std::make_unique<Process>(std::move(*SharedPage::Create(1)), pid));
    second_.Join(there_, *second_processes_.back(), 0, 0, Now());
    return *second_processes_.back();
  }
  void Hold(Process& process, MemoryHold hold) {
    (process.vgpu->gpu == 0 ? gpu_ : second_).Freezes().SetByResidency(process, hold, Now());
  }
  static bool Stands(const Process& process) { return process.gate.held; }

  GpuServer second_{*loop_, 1, {FakeDriver::UuidOf(1), "Fake GPU", 10 * kGiB, kContext}, 0, config_, channels_, {}, {}};
  VGpu there_;
  Peers peers_;
  std::vector<std::unique_ptr<Process>> second_processes_;
};

TEST_F(PeersTest, WhileMemoryOfAProgramIsMovedAllItsGpusStandStill) {
  Process& first = Running(low_).process;
  Process& second = Second(first.pid);
  Process& other = Second(first.pid + 1000);
  Hold(second, MemoryHold::kFrozen);
  EXPECT_TRUE(Frozen(*members_.back(), 20)) << "its copies, too";
  EXPECT_TRUE(Stands(first));
  EXPECT_EQ(channels_.Freezer().StatusOf(first.pid, 0).reasons, FreezeReason::kMove);
  EXPECT_FALSE(Stands(other));
  Hold(second, MemoryHold::kNone);
  EXPECT_FALSE(Frozen(*members_.back(), 20));
  EXPECT_FALSE(Stands(first));
}

TEST_F(PeersTest, MovesOnTwoGpusStandForThemselves) {
  Process& first = Running(low_).process;
  Process& second = Second(first.pid);
  Hold(first, MemoryHold::kFrozen);
  Hold(second, MemoryHold::kFrozen);
  second.page->rests = 1;
  EXPECT_TRUE(peers_.StandStill(first) && peers_.StandStill(second)) << "neither waits for the other";
  Hold(first, MemoryHold::kNone);
  EXPECT_TRUE(Stands(first)) << "the other one's memory is moved still";
  EXPECT_TRUE(Frozen(*members_.back(), 20));
  Hold(second, MemoryHold::kNone);
  EXPECT_FALSE(Stands(first) || Stands(second));
  EXPECT_FALSE(Frozen(*members_.back(), 20));
}

TEST_F(PeersTest, WhoIsStoppedAloneStopsNobodyElse) {
  Process& first = Running(low_).process;
  Process& second = Second(first.pid);
  for (const MemoryHold hold : {MemoryHold::kAlone, MemoryHold::kGate}) {
    Hold(second, MemoryHold::kFrozen);
    EXPECT_TRUE(Stands(first));
    Hold(second, hold);
    EXPECT_FALSE(Stands(first));
    EXPECT_TRUE(Stands(second));
  }
}

TEST_F(PeersTest, WhoComesOrGoesMeanwhileFollows) {
  Process& first = Running(low_).process;
  Hold(first, MemoryHold::kFrozen);
  EXPECT_TRUE(peers_.StandStill(first)) << "it has none";
  EXPECT_FALSE(peers_.WorkOf(first).any);
  Process& second = Second(first.pid);
  EXPECT_TRUE(Stands(second));
  EXPECT_TRUE(peers_.WorkOf(first).any);
  gpu_.Leave(first, Now());
  EXPECT_FALSE(Stands(second));
  gpu_.Join(low_, first, 0, 1, Now());
}

TEST_F(PeersTest, WithoutChannelsTheyStandStillWhenTheirWorkHasDrained) {
  Process& first = Running(low_).process;
  Process& second = Second(first.pid);
  second_.Time().Wants(second, false, Now());
  Hold(first, MemoryHold::kFrozen);
  EXPECT_FALSE(peers_.StandStill(first));
  EXPECT_TRUE(peers_.WorkOf(first).work);
  second_.Time().Released(second, now_, second.page.Epoch(), Now());
  EXPECT_FALSE(peers_.StandStill(first)) << "it has to look once more";
  second.page->rests = 1;
  EXPECT_TRUE(peers_.StandStill(first));
}

}  // namespace
}  // namespace tessera::server
