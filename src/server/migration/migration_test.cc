#include "server/migration/migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/process/process_start.h"
#include "base/testing/bystander.h"
#include "base/testing/temporary_folder.h"
#include "server/testing/fake_checkpointer.h"
#include "server/testing/fake_driver.h"
#include "server/testing/pool_gpu.h"

namespace tessera::server {
namespace {

using wire::MoverType;

// A program on GPU 0 that goes to GPU 1, with one slot of host memory.
class MigrationTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kSlot = 1;

  void SetUp() override {
    const auto list = driver_.List();
    for (std::uint32_t gpu = 0; gpu < list->size(); ++gpu)
      gpus_.push_back(std::make_unique<GpuServer>(*loop_, gpu, (*list)[gpu], 0, config_, channels_, SwapSetup(),
                                                  GpuServer::Hooks()));
    vgpu_ = *table_.Create({.name = "team", .gpu = "0"}, 0, 0);
    process_.page->rests = 1;
    process_.page->first_call = wire::FirstCall::kAwaited;
    gpus_[0]->Join(*vgpu_, process_, 0, 1, now_);
    process_.residence.moves.Bring(wire::kChunkBytes);
    process_.page->swapped = wire::kChunkBytes;
    from_.Put(kSlot, wire::SwapEntry::kParked | wire::SwapEntry::kShared);
    migration_.emplace(std::vector<VGpuMove>{{vgpu_->id, 1}}, table_, gpus_, suspensions_, means_);
  }
  ~MigrationTest() override {
    migration_.reset();
    gpus_[process_.vgpu->gpu]->Leave(process_, now_);
  }

  // Until this asks for what the program has in host memory.
  void Begin() {
    ASSERT_TRUE(migration_->Begin(now_));
    step_.Arm(MonotonicNow());
    ASSERT_TRUE(loop_->Run());
    ASSERT_TRUE(handover_);
  }
  // Until the vGPU has moved.
  void Move() {
    moves_ = true;
    ASSERT_TRUE(migration_->Begin(now_));
    step_.Arm(MonotonicNow());
    ASSERT_TRUE(loop_->Run());
    EXPECT_EQ(vgpu_->gpu, 1u);
  }
  // The movers do all that they are asked.
  void Give() {
    from_.Say({.type = MoverType::kLent, .bytes = PoolGpu::kOwner, .other = 1});
    to_.Say({.type = MoverType::kSlotTaken, .bytes = kSlot});
    to_.TakeHeard();
  }
  bool InPools(bool from, bool to) const { return from_.slots.Has(kSlot) == from && to_.slots.Has(kSlot) == to; }

  const Nanos now_ = MonotonicNow();
  FakeDriver driver_{2};
  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  const Config config_;
  ChannelServer channels_{nullptr, "this is a test", nullptr};
  VGpuTable::Gpus gpus_;
  VGpuTable table_{*loop_, gpus_, [] {}};
  VGpu* vgpu_ = nullptr;
  Process process_{SharedPage::Create(0).value(), PoolGpu::kOwner};
  const TemporaryFolder folder_;
  SuspendedFiles files_{folder_.path()};
  Suspensions suspensions_{*loop_, gpus_, files_, [this] {
                             auto checkpointer = std::make_unique<FakeCheckpointer>(*loop_);
                             checkpointer->states[PoolGpu::kOwner] = cuda::CU_PROCESS_STATE_RUNNING;
                             return checkpointer;
                           }};
  PoolGpu from_{*loop_}, to_{*loop_};
  MemoryGiver::Given handover_;  // under way
  bool recorded_ = false;
  bool moves_ = false;
  const Migration::Means means_{
      .give =
          [this](const Process&, GpuServer&, GpuServer&, const std::set<std::uint64_t>&, MemoryGiver::Done done) {
            handover_ = std::make_unique<SlotHandover>(from_.Side(), to_.Side(), PoolGpu::kOwner);
            EXPECT_TRUE(handover_->Start([this, done](const Result<void>& given) {
              EXPECT_TRUE(given);
              done(std::move(handover_));
            }));
            if (!moves_) loop_->Stop();
          },
      .save = [this] { return [this] { return recorded_; }; }};
  std::optional<Migration> migration_;
  EventLoop::Timer step_{*loop_, [this] {
                           migration_->Step(MonotonicNow());
                           if (moves_ && handover_) Give();
                           if (vgpu_->gpu != 0) loop_->Stop();
                           step_.ArmIn(kMillisecond);
                         }};
};

// It would stay where it was, and its vGPU would not be there any more.
TEST_F(MigrationTest, AProgramThatHasNotComeBackToThisDaemonYetIsNotLeftBehind) {
  Bystander other;
  gpus_[0]->Survivors().Expect({other.Pid(), ProcessStart(other.Pid()).value()}, now_);
  const auto begun = migration_->Begin(now_);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, EBUSY);
  EXPECT_THAT(begun.error().message, testing::HasSubstr(std::to_string(other.Pid())));
  EXPECT_FALSE(suspensions_.Find(PoolGpu::kOwner));
  gpus_[0]->Survivors().Attached(other.Pid());
  EXPECT_TRUE(migration_->Begin(now_));
}

TEST_F(MigrationTest, WhatHasLeftIsHandedOverWhileTheDriverSavesTheRest) {
  Begin();
  EXPECT_EQ(suspensions_.Find(PoolGpu::kOwner)->Phase(), SuspensionPhase::kSaves);
  Give();
  EXPECT_EQ(vgpu_->gpu, 0u) << "it is not saved yet";
  EXPECT_TRUE(InPools(true, true));
}

TEST_F(MigrationTest, TheFirstMoverLetsGoWhenItIsRecordedWhereTheVGpuIs) {
  Move();
  migration_->Step(now_);
  EXPECT_TRUE(InPools(true, true));
  recorded_ = true;
  migration_->Step(now_);
  EXPECT_TRUE(InPools(false, true));
}

// A daemon writes the state files at its end: the next one finds the vGPU on the new GPU.
TEST_F(MigrationTest, ADaemonThatEndsBeforeThatIsRecordedTakesNothingFromEitherMover) {
  Move();
  migration_.reset();
  EXPECT_TRUE(InPools(true, true));
  EXPECT_TRUE(to_.TakeHeard().empty());
}

TEST_F(MigrationTest, ADaemonThatEndsBeforeTheVGpuHasMovedTakesItFromTheNewMover) {
  Begin();
  EXPECT_EQ(vgpu_->gpu, 0u);
  migration_.reset();
  handover_.reset();
  EXPECT_TRUE(InPools(true, false));
}

}  // namespace
}  // namespace tessera::server
