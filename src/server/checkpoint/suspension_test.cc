#include "server/checkpoint/suspension.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temporary_folder.h"
#include "server/gpu/vgpu_table.h"
#include "server/record/trace.h"
#include "server/testing/fake_checkpointer.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {
namespace {

using enum SuspensionPhase;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr pid_t kPid = 100;
constexpr Suspension::Bounds kBounds{.drain = 30 * kSecond, .still = 20 * kSecond, .lock = 10 * kSecond};

// A program on two GPUs whose memory is not swapped, and the driver.
class SuspensionTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto list = driver_.List();
    for (std::uint32_t gpu = 0; gpu < list->size(); ++gpu)
      gpus_.push_back(std::make_unique<GpuServer>(*loop_, gpu, (*list)[gpu], 0, config_, channels_, SwapSetup(),
                                                  GpuServer::Hooks()));
    table_ = std::make_unique<VGpuTable>(*loop_, gpus_, [] {});
    for (std::uint32_t gpu = 0; gpu < list->size(); ++gpu) {
      vgpus_.push_back(*table_->Create({.name = "v" + std::to_string(gpu), .gpu = std::to_string(gpu)}, 0, 0));
      Join(gpu);
    }
  }
  ~SuspensionTest() override {
    suspension_.reset();
    End();
  }

  Process& Join(std::uint32_t gpu) {
    processes_.push_back(std::make_unique<Process>(SharedPage::Create(gpu).value(), kPid));
    Process& process = *processes_.back();
    process.page->rests = 1;
    process.page->first_call = wire::FirstCall::kAwaited;
    if (suspension_) {
      process.vgpu = vgpus_[gpu];
      process.suspension.saved_on = gpu;
      suspension_->Joining(process, now_);
    }
    gpus_[gpu]->Join(*vgpus_[gpu], process, 0, 1, now_);
    return process;
  }
  // The program does.
  void End() {
    for (const auto& process : processes_) gpus_[process->vgpu->gpu]->Leave(*process, now_);
    processes_.clear();
  }

  void Make() {
    auto checkpointer = std::make_unique<FakeCheckpointer>(*loop_);
    asked_ = checkpointer.get();
    asked_->answers = false;
    asked_->states[kPid] = cuda::CU_PROCESS_STATE_RUNNING;
    suspension_ = std::make_unique<Suspension>(kPid, gpus_, files_, figures_, std::move(checkpointer), kBounds);
  }
  // It is on its way, and the driver is asked to lock it, if that is prepared.
  void Begin(bool prepared = true) {
    Make();
    asked_->ready = prepared;
    ASSERT_TRUE(suspension_->Begin(now_));
  }
  void Suspended() {
    Begin();
    AnswerAll();
    ASSERT_EQ(suspension_->Phase(), kSuspended);
  }
  void Return() {
    suspension_->Return(now_);
    suspension_->Step(now_);
  }
  void Step(Nanos later = 0) { suspension_->Step(now_ += later); }
  void AnswerAll() {
    while (asked_->AnswerNext()) Step();
  }
  void Fails(FakeCheckpointer::Operation operation, int code) {
    asked_->failures.emplace(operation, Error{code, "it does not want to", ""});
  }
  // Nothing of it may run, or all of it; and what its threads and its next daemon read.
  bool Stands() const {
    for (const auto& process : processes_) {
      if (!process->MustStand()) return false;
    }
    return true;
  }
  std::uint32_t Word(std::size_t process = 0) const { return processes_[process]->page->away.load(); }
  const std::string& Why() const { return processes_.front()->suspension.error; }

  FakeDriver driver_{2};
  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  const Config config_;
  ChannelServer channels_{nullptr, "this is a test", nullptr};
  VGpuTable::Gpus gpus_;
  const TemporaryFolder folder_;
  SuspendedFiles files_{folder_.path()};
  std::unique_ptr<VGpuTable> table_;
  std::vector<VGpu*> vgpus_;
  std::vector<std::unique_ptr<Process>> processes_;
  MovingFigures figures_;
  std::unique_ptr<Suspension> suspension_;
  FakeCheckpointer* asked_ = nullptr;
  Nanos now_ = MonotonicNow();
};

using Call = FakeCheckpointer::Operation;

TEST_F(SuspensionTest, ItGoesAndComesBack) {
  Suspended();
  EXPECT_TRUE(Stands());
  EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(Word(0), wire::AwayWord(0, false));
  EXPECT_EQ(Word(1), wire::AwayWord(1, false));
  Return();
  EXPECT_EQ(Word(1), wire::AwayWord(1, true));
  EXPECT_TRUE(Stands());
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_RUNNING);
  EXPECT_TRUE(asked_->pairs.empty());
  EXPECT_FALSE(processes_[0]->MustStand() || processes_[1]->MustStand());
  EXPECT_EQ(Word(), 0u);
  EXPECT_EQ(Why(), "");
  EXPECT_THAT(figures_.suspensions, ElementsAre(1, 1, 0, 0));
}

// It says so when its gate is closed, and not again. Without channels it counts as one that never worked.
TEST_F(SuspensionTest, WhatWorksWhenItIsBackIsKnownToWork) {
  Begin();
  for (const auto& process : processes_) {
    gpus_[process->vgpu->gpu]->Time().Wants(*process, /*waits=*/true, now_);
    EXPECT_TRUE(process->work.worked);
  }
  AnswerAll();
  for (const auto& gpu : gpus_) gpu->Time().ChannelsChanged(kPid, now_);
  EXPECT_FALSE(processes_[0]->work.worked || processes_[1]->work.worked);
  Return();
  AnswerAll();
  EXPECT_TRUE(processes_[0]->work.worked && processes_[1]->work.worked);
}

TEST_F(SuspensionTest, EachPhaseIsInTheFiguresOnceAndInTheTraceForEachGpu) {
  trace::Begin(folder_.path());
  processes_[1]->page->rests = 0;
  Begin();
  processes_[1]->page->rests = 1;
  Step(3 * kSecond);
  AnswerAll();
  Return();
  AnswerAll();
  Begin();
  End();  // it dies on its way
  const TraceCopy copy = trace::Copy(0);
  trace::End();
  std::vector<SuspensionPhase> phases;
  for (const TraceRecord& record : copy.records) {
    if (record.kind != TraceKind::kSuspension || record.gpu != 1) continue;
    EXPECT_EQ(record.pid, kPid);
    EXPECT_EQ(record.vgpu, vgpus_[1]->id);
    const auto before = static_cast<SuspensionPhase>(record.old_value);
    EXPECT_EQ(before, phases.empty() ? kNone : phases.back());
    if (phases.size() == 2) EXPECT_EQ(record.took, 3 * kSecond) << "it drained";
    phases.push_back(static_cast<SuspensionPhase>(record.value));
  }
  EXPECT_THAT(phases, ElementsAre(kPrepares, kDrains, kLeaves, kSaves, kSuspended, kReturns, kRestores, kNone,
                                  kPrepares, kDrains, kLeaves, kSaves, kNone));
  EXPECT_EQ(figures_.phases[1].Sum(), 3 * kSecond) << "of a program on two GPUs, once";
}

TEST_F(SuspensionTest, TheProgramWorksUntilTheDriversCallsArePrepared) {
  Begin(/*prepared=*/false);
  EXPECT_EQ(suspension_->Phase(), kPrepares);
  EXPECT_EQ(asked_->prepared, 1);
  EXPECT_FALSE(Stands());
  Step(kSecond);
  EXPECT_FALSE(Stands());
  asked_->ready = true;
  Step(1);
  EXPECT_TRUE(Stands());
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kSuspended);
}

TEST_F(SuspensionTest, PreparationsThatTakeLongAreNotWaitedFor) {
  Begin(/*prepared=*/false);
  Step(10 * kSecond);
  EXPECT_TRUE(Stands());
}

TEST_F(SuspensionTest, WhatDoesNotDrainGoesOn) {
  processes_[1]->page->rests = 0;
  Begin();
  EXPECT_EQ(suspension_->Phase(), kDrains);
  Step(kBounds.drain);
  EXPECT_EQ(suspension_->Phase(), kDrains);
  Step(1);
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(suspension_->Failure()->code, ETIMEDOUT);
  EXPECT_THAT(figures_.suspensions, ElementsAre(0, 0, 1, 0));
  EXPECT_FALSE(Stands());
  EXPECT_THAT(Why(), HasSubstr("did not end within 30 s"));
  EXPECT_THAT(asked_->asked, SizeIs(0));
}

TEST_F(SuspensionTest, TheDriverLocksItWhenNoThreadOfTesserasIsInside) {
  processes_[1]->page->own_calls = 1;
  Begin();
  EXPECT_EQ(suspension_->Phase(), kSaves);
  EXPECT_NE(Word(), 0u) << "no other may come";
  Step(kBounds.lock);
  EXPECT_THAT(asked_->asked, SizeIs(0));
  processes_[1]->page->own_calls = 0;
  Step();
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kSuspended);
}

TEST_F(SuspensionTest, TheDriverLocksItWhenItsCallsAreWatchedOnAllGpus) {
  processes_[1]->page->first_call = wire::FirstCall::kUnseen;
  Begin();
  Step(kBounds.lock);
  EXPECT_THAT(asked_->asked, SizeIs(0));
  processes_[1]->page->first_call = wire::FirstCall::kCame;
  Step();
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kSuspended);
}

TEST_F(SuspensionTest, WhetherItIsAwayByItselfIsSaidToItsNextDaemon) {
  Make();
  suspension_->SetByItself(true);
  ASSERT_TRUE(suspension_->Begin(now_));
  EXPECT_EQ(Word(), wire::AwayWord(0, false, true));
  AnswerAll();
  EXPECT_TRUE(processes_[0]->suspension.by_itself && processes_[1]->suspension.by_itself);
  Return();
  EXPECT_EQ(Word(1), wire::AwayWord(1, true, true));
  AnswerAll();
  EXPECT_FALSE(processes_[0]->suspension.by_itself || processes_[1]->suspension.by_itself);
  EXPECT_THAT(figures_.suspensions, ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(figures_.idle_suspensions, figures_.suspensions);
}

TEST_F(SuspensionTest, AnOperatorCanTakeThatBack) {
  Make();
  suspension_->SetByItself(true);
  ASSERT_TRUE(suspension_->Begin(now_));
  AnswerAll();
  suspension_->SetByItself(false);
  EXPECT_EQ(Word(1), wire::AwayWord(1, false, false));
  EXPECT_FALSE(processes_[0]->suspension.by_itself);
}

TEST_F(SuspensionTest, ThreadsThatStayInsideKeepItHere) {
  processes_[0]->page->own_calls = 1;
  Begin();
  Step(kBounds.lock + 1);
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(Word(), 0u);
  EXPECT_FALSE(Stands());
  EXPECT_THAT(asked_->asked, SizeIs(0));
}

TEST_F(SuspensionTest, WithHostMemoryItIsNeverSaved) {
  processes_[1]->page->host_held = 1;
  Begin();
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(suspension_->Failure()->code, EAGAIN);
  EXPECT_THAT(asked_->asked, SizeIs(0));
}

TEST_F(SuspensionTest, WhatFailsBeforeItIsSavedIsUndone) {
  for (const Call fails : {Call::kLock, Call::kCheckpoint}) {
    Begin();
    Fails(fails, EIO);
    AnswerAll();
    EXPECT_TRUE(suspension_->Over());
    EXPECT_EQ(suspension_->Failure()->code, EIO);
    EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_RUNNING);
    EXPECT_FALSE(Stands());
    EXPECT_THAT(Why(), HasSubstr("it does not want to"));
  }
}

TEST_F(SuspensionTest, WhereAnAnswerIsLostTheSameCallComesAgain) {
  Begin();
  Fails(Call::kCheckpoint, EPIPE);
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kSuspended);
  Fails(Call::kRestore, EPIPE);
  Return();
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_RUNNING);
  EXPECT_FALSE(suspension_->Failure());
}

TEST_F(SuspensionTest, ALockWhoseAnswerIsLostIsUndone) {
  Begin();
  Fails(Call::kLock, EPIPE);
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_RUNNING);
  EXPECT_FALSE(Stands());
}

TEST_F(SuspensionTest, WhatCannotBeRestoredStaysAndCanComeBackLater) {
  Suspended();
  Fails(Call::kRestore, ENOMEM);
  Return();
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kSuspended);
  EXPECT_EQ(suspension_->Failure()->code, ENOMEM);
  EXPECT_TRUE(Stands());
  EXPECT_EQ(Word(), wire::AwayWord(0, false)) << "it is not on its way any more";
  Return();
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
}

TEST_F(SuspensionTest, WhatIsNotUnlockedStaysHeldUntilItIs) {
  Suspended();
  Fails(Call::kUnlock, EIO);
  Return();
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kRestores);
  EXPECT_TRUE(Stands());
  Step(2 * kSecond);
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
}

TEST_F(SuspensionTest, WhatTheDriverLosesRunsSoThatItSeesItsErrors) {
  Begin();
  Fails(Call::kCheckpoint, ENOTRECOVERABLE);
  asked_->AnswerNext();
  asked_->states[kPid] = cuda::CU_PROCESS_STATE_FAILED;
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
  EXPECT_EQ(suspension_->Failure()->code, ENOTRECOVERABLE);
  EXPECT_THAT(figures_.suspensions, ElementsAre(0, 0, 0, 1));
  EXPECT_FALSE(Stands());
  bool told = false;
  for (const Event& event : events::After(0, events::kKept).events)
    told |= event.type == EventType::kProcessLost && event.pid == kPid;
  EXPECT_TRUE(told);
}

TEST_F(SuspensionTest, AProgramMayEndInEachPhase) {
  for (int answers = 0; answers < 3; ++answers) {  // drained, locked, saved
    Begin();
    for (int i = 0; i < answers; ++i) asked_->AnswerNext();
    End();
    Step();
    EXPECT_TRUE(suspension_->Over()) << answers;
    suspension_.reset();
    Join(0);
  }
  Suspended();
  Return();
  End();
  Step();
  EXPECT_TRUE(suspension_->Over());
  AnswerAll();  // what comes late is of no use
}

// ---- after another daemon ----

TEST_F(SuspensionTest, ClaimsOfAProgramThatMakeNoSenseDoNoHarm) {
  Suspended();
  for (const auto& process : processes_) process->suspension.saved_on = 1;  // both were on one GPU
  Return();
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
  EXPECT_TRUE(asked_->pairs.empty());
}

TEST_F(SuspensionTest, WhatAnEarlierDaemonSuspendedStaysSo) {
  Make();
  asked_->states[kPid] = cuda::CU_PROCESS_STATE_CHECKPOINTED;
  End();
  suspension_->TakeOver(false, now_);
  Join(0);
  EXPECT_TRUE(Stands());
  Step();
  AnswerAll();
  EXPECT_EQ(suspension_->Phase(), kSuspended);
  Join(1);  // the rest of it
  Step();
  EXPECT_TRUE(Stands());
  EXPECT_EQ(processes_[1]->suspension.phase, kSuspended);
  Return();
  AnswerAll();
  EXPECT_TRUE(suspension_->Over());
}

TEST_F(SuspensionTest, WhatWasOnItsWayBackComes) {
  for (const auto state : {cuda::CU_PROCESS_STATE_CHECKPOINTED, cuda::CU_PROCESS_STATE_LOCKED}) {
    Make();
    asked_->states[kPid] = state;
    End();
    suspension_->TakeOver(true, now_);
    Join(0);
    Step();
    AnswerAll();
    EXPECT_TRUE(suspension_->Over());
    EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_RUNNING);
    EXPECT_EQ(Why(), "");
  }
}

TEST_F(SuspensionTest, WhatWasNotSavedYetGoesOn) {
  for (const auto state : {cuda::CU_PROCESS_STATE_RUNNING, cuda::CU_PROCESS_STATE_LOCKED}) {
    Make();
    asked_->states[kPid] = state;
    End();
    suspension_->TakeOver(false, now_);
    Join(0);
    Step();
    AnswerAll();
    EXPECT_TRUE(suspension_->Over());
    EXPECT_EQ(asked_->states[kPid], cuda::CU_PROCESS_STATE_RUNNING);
    EXPECT_FALSE(Stands());
    EXPECT_THAT(Why(), HasSubstr("the daemon ended meanwhile"));
  }
}

TEST_F(SuspensionTest, WhereNobodyCanSayWhatItIsItStands) {
  Make();
  for (int i = 0; i < 5; ++i) Fails(Call::kState, ENOENT);
  End();
  suspension_->TakeOver(false, now_);
  Join(0);
  Step();
  for (int i = 0; i < 5; ++i) {
    AnswerAll();
    EXPECT_TRUE(Stands());
    Step(2 * kSecond);
  }
  EXPECT_EQ(suspension_->Phase(), kSuspended);
  Return();
  AnswerAll();
  EXPECT_TRUE(suspension_->Over()) << "it ran all the time";
}

}  // namespace
}  // namespace tessera::server
