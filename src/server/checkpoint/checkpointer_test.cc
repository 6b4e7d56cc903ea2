#include "server/checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "server/testing/checkpointer_fixture.h"
#include "server/testing/fake_checkpointer.h"

namespace tessera::server {
namespace {

using testing::ElementsAre;
using wire::CheckpointRequest;
using Call = wire::CheckpointOperation;

TEST_F(CheckpointerTest, OneCallAfterTheOtherByOneProcess) {
  Make();
  EXPECT_EQ(Processes(), 0u) << "it starts none before it has something to do";
  Answered locked, restored, unlocked;
  std::optional<Result<cuda::CUprocessState>> state;
  On([&] { checkpointer_->Lock(5, 1500 * kMillisecond, Note(locked)); });
  On([&] { checkpointer_->Restore(6, {{.from = {{1}}, .to = {{2}}}, {.from = {{2}}, .to = {{1}}}}, Note(restored)); });
  On([&] { checkpointer_->State(7, [&](const auto& its) { state = its; }); });

  const CheckpointRequest lock = Next(0);
  EXPECT_EQ(lock.operation, Call::kLock);
  EXPECT_EQ(lock.pid, 5);
  EXPECT_EQ(lock.timeout_ms, 1500u);
  EXPECT_FALSE(Process(0).Asked()) << "the second has to wait";
  EXPECT_FALSE(locked);
  Process(0).Answer(lock, cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_LOCKED);

  const CheckpointRequest restore = Next(0);
  EXPECT_EQ(CodeOf(locked), 0);
  EXPECT_EQ(restore.operation, Call::kRestore);
  ASSERT_EQ(restore.pair_count, 2u);
  EXPECT_EQ(restore.pairs[0].to.bytes[0], 2);
  EXPECT_EQ(restore.pairs[1].from.bytes[0], 2);
  Process(0).Answer(restore, cuda::CUDA_ERROR_OUT_OF_MEMORY, cuda::CU_PROCESS_STATE_CHECKPOINTED);

  Process(0).Answer(Next(0), cuda::CUDA_SUCCESS, cuda::CU_PROCESS_STATE_CHECKPOINTED);
  Until([&] { return state.has_value(); });
  EXPECT_EQ(CodeOf(restored), ENOMEM);
  EXPECT_EQ(state->value(), cuda::CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(Processes(), 1u);
}

TEST_F(CheckpointerTest, ALockNeverWaitsForEver) {
  Make();
  On([&] { checkpointer_->Lock(5, 0, [](const auto&) {}); });
  EXPECT_EQ(Next(0).timeout_ms, 1u) << "0 is for ever to the driver";
}

TEST_F(CheckpointerTest, TooManyGpusAreRefused) {
  Make();
  Answered restored;
  On([&] {
    checkpointer_->Restore(5, std::vector<wire::GpuPair>(wire::kMostGpuPairs + 1), Note(restored));
    EXPECT_FALSE(restored) << "callbacks come from the loop";
  });
  EXPECT_EQ(CodeOf(restored), E2BIG);
  EXPECT_EQ(Processes(), 0u);
}

TEST_F(CheckpointerTest, ThePreparedProcessWaitsForARequest) {
  Make();
  On([&] { checkpointer_->Prepare(); });
  On([&] { checkpointer_->Prepare(); });
  ASSERT_EQ(Processes(), 1u);
  EXPECT_FALSE(Process(0).Asked());
  On([&] { checkpointer_->Unlock(5, [](const auto&) {}); });
  EXPECT_EQ(Next(0).operation, Call::kUnlock);
  EXPECT_EQ(Processes(), 1u);
}

TEST_F(CheckpointerTest, ItMayEndInACallbackAndCallsBackNoMore) {
  Make();
  int called = 0;
  On([&] {
    const auto end = [&](const Result<void>&) {
      ++called;
      checkpointer_.reset();
    };
    checkpointer_->Unlock(5, end);
    checkpointer_->Restore(5, std::vector<wire::GpuPair>(wire::kMostGpuPairs + 1), end);
    checkpointer_->Restore(5, std::vector<wire::GpuPair>(wire::kMostGpuPairs + 1), end);
  });
  Until([&] { return processes_[0]->Closed(); });
  EXPECT_EQ(called, 1);
  EXPECT_FALSE(Process(0).Killed()) << "a call under way goes on to its end";
}

TEST_F(CheckpointerTest, TheFakeWalksThroughTheStates) {
  std::optional<FakeCheckpointer> fake;
  std::vector<int> codes;
  const auto note = [&](const Result<void>& result) { codes.push_back(result ? 0 : result.error().code); };
  std::optional<cuda::CUprocessState> between, last;
  On([&] {
    fake.emplace(*loop_);
    fake->states[5] = cuda::CU_PROCESS_STATE_RUNNING;
    fake->failures.emplace(Call::kLock, Error{.code = EBUSY, .message = "busy", .hint = {}});
    fake->Lock(5, kSecond, note);
    fake->Checkpoint(5, note);
    fake->Lock(5, kSecond, note);
    fake->Checkpoint(5, note);
    fake->State(5, [&](const auto& state) { between = *state; });
    fake->Restore(5, {}, note);
    fake->Unlock(5, note);
    fake->Unlock(6, note);
    fake->State(5, [&](const auto& state) { last = *state; });
    EXPECT_TRUE(codes.empty()) << "callbacks come from the loop";
  });
  Until([&] { return last.has_value(); });
  On([&] { fake.reset(); });
  EXPECT_THAT(codes, ElementsAre(EBUSY, EINVAL, 0, 0, 0, 0, ESRCH));
  EXPECT_EQ(between, cuda::CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(last, cuda::CU_PROCESS_STATE_RUNNING);
}

}  // namespace
}  // namespace tessera::server
