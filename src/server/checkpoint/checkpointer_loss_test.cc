// Checkpointers whose process, or the driver behind it, does not do what it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "server/testing/checkpointer_fixture.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using wire::CheckpointAnswerType;
using wire::CheckpointRequest;

TEST_F(CheckpointerTest, AProcessWithoutWorkIsEnded) {
  limits_.idle = 5 * kMillisecond;
  Make();
  Answered first, second;
  Unlock(5, first);
  Process(0).Answer(Next(0), cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_RUNNING);
  Until([&] { return first && processes_[0]->Closed(); });
  EXPECT_FALSE(Process(0).Killed()) << "it ends by itself";

  Unlock(5, second);
  Process(1).Answer(Next(1), cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(CodeOf(second), 0);
}

TEST_F(CheckpointerTest, WhenTheProcessDiesItsCallFailsAndTheNextOneGoesOn) {
  Make();
  Answered lost, kept;
  On([&] { checkpointer_->Checkpoint(5, Note(lost)); });
  On([&] { checkpointer_->Checkpoint(6, Note(kept)); });
  EXPECT_EQ(Next(0).pid, 5);
  Process(0).Die();
  const CheckpointRequest next = Next(1);
  EXPECT_EQ(next.pid, 6);
  EXPECT_EQ(CodeOf(lost), EPIPE);
  EXPECT_THAT(lost->error().message, StartsWith("cannot checkpoint program 5: tessera-checkpoint has ended"));
  EXPECT_FALSE(kept);
  Process(1).Answer(next, cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(CodeOf(kept), 0);
}

TEST_F(CheckpointerTest, AnIdleProcessThatDiesIsReplaced) {
  Make();
  On([&] { checkpointer_->Prepare(); });
  Answered done;
  Unlock(5, done);
  Process(0).Answer(Next(0), cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_RUNNING);
  Until([&] { return done.has_value(); });
  Process(0).Die();
  Until([&] { return processes_[0]->Killed(); });
  Unlock(6, done);
  EXPECT_EQ(Next(1).pid, 6);
}

TEST_F(CheckpointerTest, ADriverThatDoesNotAnswerEndsWithItsProcess) {
  limits_.call = 5 * kMillisecond;
  Make();
  Answered unlocked;
  Unlock(5, unlocked);
  Until([&] { return unlocked && processes_[0]->Killed(); });
  EXPECT_EQ(CodeOf(unlocked), ETIMEDOUT);
  EXPECT_THAT(unlocked->error().Text(), HasSubstr("cannot unlock program 5: the driver does not answer; "));
}

TEST_F(CheckpointerTest, EachCallHasItsOwnLimit) {
  limits_.lock = limits_.copy = 5 * kMillisecond;
  Make();
  Answered locked, checkpointed, restored;
  On([&] { checkpointer_->Lock(5, kMillisecond, Note(locked)); });
  On([&] { checkpointer_->Checkpoint(5, Note(checkpointed)); });
  On([&] { checkpointer_->Restore(5, {}, Note(restored)); });
  Until([&] { return restored.has_value(); });
  EXPECT_EQ(CodeOf(locked), ETIMEDOUT);
  EXPECT_EQ(CodeOf(checkpointed), ETIMEDOUT);
  EXPECT_EQ(CodeOf(restored), ETIMEDOUT);
  EXPECT_EQ(Processes(), 3u);
}

TEST_F(CheckpointerTest, AProcessThatIsNeverReadyIsGivenUp) {
  limits_.start = 5 * kMillisecond;
  first_word_.reset();
  Make();
  Answered first, second;
  Unlock(5, first);
  Unlock(6, second);
  Until([&] { return first && second && processes_[0]->Killed(); });
  EXPECT_EQ(CodeOf(first), ETIMEDOUT);
  EXPECT_EQ(CodeOf(second), ETIMEDOUT);
  EXPECT_EQ(Processes(), 1u) << "the next one would fare alike";
}

TEST_F(CheckpointerTest, ItSaysWhyItCannotWork) {
  first_word_ = {.type = CheckpointAnswerType::kFailed, .error = EOPNOTSUPP, .text = "the driver is old"};
  Make();
  Answered first, second, third;
  On([&] { checkpointer_->Lock(5, kSecond, Note(first)); });
  Unlock(6, second);
  Until([&] { return first && second; });
  EXPECT_EQ(CodeOf(first), EOPNOTSUPP);
  EXPECT_EQ(first->error().message, "cannot lock program 5: the driver is old");
  EXPECT_EQ(CodeOf(second), EOPNOTSUPP);

  On([&] { cannot_start_ = true; });
  Unlock(7, third);
  EXPECT_EQ(CodeOf(third), EAGAIN);
}

TEST_F(CheckpointerTest, AnAnswerToAnotherQuestionIsNone) {
  Make();
  Answered unlocked;
  Unlock(5, unlocked);
  CheckpointRequest request = Next(0);
  request.pid = 6;
  Process(0).Answer(request, cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_RUNNING);
  Until([&] { return unlocked && processes_[0]->Killed(); });
  EXPECT_EQ(CodeOf(unlocked), EPIPE);
}

TEST_F(CheckpointerTest, TheProgramSaysThatThereIsNoDriver) {
  setenv("TESSERA_REAL_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
  Answered locked;
  On([&] {
    checkpointer_ = MakeCheckpointer(*loop_, /*soft=*/false);
    checkpointer_->Lock(1, kSecond, Note(locked));
  });
  Until([&] { return locked.has_value(); });
  unsetenv("TESSERA_REAL_LIBCUDA");
  EXPECT_EQ(CodeOf(locked), ENOENT);
  EXPECT_THAT(locked->error().Text(), HasSubstr("load the CUDA driver: /nonexistent/libcuda.so.1"));
}

}  // namespace
}  // namespace tessera::server
