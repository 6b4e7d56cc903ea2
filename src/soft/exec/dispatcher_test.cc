#include "soft/exec/dispatcher.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

namespace tessera::soft {
namespace {

using cuda::CUresult;

class DispatcherTest : public testing::Test {
 protected:
  // A task that appends `name` to `trace`.
  Task Trace(Lane lane, char name) {
    return {lane, [this, name] {
              const MutexLock lock(mutex_);
              trace_ += name;
              return cuda::CUDA_SUCCESS;
            }};
  }

  // A task that waits for `promise`, which the test sets.
  static Task Hold(Lane lane, std::promise<void>& promise) {
    return {lane, [future = promise.get_future().share()] {
              future.wait();
              return cuda::CUDA_SUCCESS;
            }};
  }

  std::string trace() {
    const MutexLock lock(mutex_);
    return trace_;
  }

  OpRef Submit(Task task, std::vector<OpRef> after = {}) { return dispatcher_.Submit(std::move(task), after); }

  Mutex mutex_;
  std::string trace_ TESSERA_GUARDED_BY(mutex_);
  std::atomic<int> errors_ = 0;
  std::atomic<CUresult> last_error_ = cuda::CUDA_SUCCESS;
  Dispatcher dispatcher_{{.on_error =
                              [this](CUresult error) {
                                ++errors_;
                                last_error_ = error;
                              },
                          .on_compute_idle = [] {}}};
};

TEST_F(DispatcherTest, RunsInTheOrderOfDependencies) {
  std::promise<void> go;
  const OpRef hold = Submit(Hold(Lane::kHost, go));
  const OpRef c = Submit(Trace(Lane::kCopy, 'c'), {hold});
  const OpRef b = Submit(Trace(Lane::kCompute, 'b'), {c});
  const OpRef a = Submit(Trace(Lane::kCopy, 'a'), {b, c, hold});
  EXPECT_FALSE(Dispatcher::Done(c));
  go.set_value();
  Dispatcher::Wait(a);
  EXPECT_EQ(trace(), "cba");
  EXPECT_TRUE(Dispatcher::Done(hold) && Dispatcher::Done(c) && Dispatcher::Done(b) && Dispatcher::Done(a));
  EXPECT_LE(Dispatcher::FinishedAt(c), Dispatcher::FinishedAt(b));
}

TEST_F(DispatcherTest, LanesDoNotHoldOneAnotherUp) {
  std::promise<void> kernel, host;
  Submit(Hold(Lane::kCompute, kernel));
  Submit(Hold(Lane::kHost, host));
  Dispatcher::Wait(Submit(Trace(Lane::kCopy, 'c')));
  Dispatcher::Wait(Submit(Trace(Lane::kMemory, 'm')));
  EXPECT_EQ(trace(), "cm");
  kernel.set_value();
  host.set_value();
  dispatcher_.Synchronize();
}

TEST_F(DispatcherTest, BriefOperationsRunWhereTheWorkBeforeThemRan) {
  std::promise<void> go;
  std::thread::id kernel, brief, alone;
  const auto note = [](std::thread::id& id) {
    return [&id] {
      id = std::this_thread::get_id();
      return cuda::CUDA_SUCCESS;
    };
  };
  const OpRef hold = Submit(Hold(Lane::kCompute, go));
  const OpRef before = Submit({Lane::kCompute, note(kernel)}, {hold});
  const OpRef mark = Submit({}, {before});
  const OpRef after = Submit({.lane = Lane::kMemory, .body = note(brief), .brief = true}, {mark});
  const OpRef free = Submit({.lane = Lane::kMemory, .body = note(alone), .brief = true});
  Dispatcher::Wait(free);
  go.set_value();
  Dispatcher::Wait(after);
  EXPECT_EQ(brief, kernel);
  EXPECT_NE(alone, kernel);
}

TEST_F(DispatcherTest, MarksEndWithWhatTheyWaitFor) {
  std::promise<void> go;
  const OpRef hold = Submit(Hold(Lane::kHost, go));
  const OpRef first = Submit({}, {hold});
  const OpRef second = Submit({}, {first, nullptr});
  EXPECT_FALSE(Dispatcher::Done(second));
  EXPECT_EQ(Dispatcher::FinishedAt(second), 0);
  go.set_value();
  Dispatcher::Wait(second);
  EXPECT_GE(Dispatcher::FinishedAt(second), Dispatcher::FinishedAt(hold));
  EXPECT_TRUE(Dispatcher::Done(nullptr));
}

TEST_F(DispatcherTest, TriesAgainWhatIsNotReady) {
  std::atomic<bool> flag = false;
  std::atomic<int> tries = 0;
  const OpRef wait = Submit({Lane::kMemory, [&] {
                               if (++tries == 3) flag = true;
                               return flag ? cuda::CUDA_SUCCESS : cuda::CUDA_ERROR_NOT_READY;
                             }});
  Dispatcher::Wait(wait);
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(errors_, 0);
}

TEST_F(DispatcherTest, OneThatWaitsLetsOthersOfItsLanePass) {
  std::atomic<bool> flag = false;
  const OpRef wait = Submit({Lane::kMemory, [&] { return flag ? cuda::CUDA_SUCCESS : cuda::CUDA_ERROR_NOT_READY; }});
  Dispatcher::Wait(Submit({Lane::kMemory, [&] {
                             flag = true;
                             return cuda::CUDA_SUCCESS;
                           }}));
  Dispatcher::Wait(wait);
}

TEST_F(DispatcherTest, ABriefOneThatWaitsLeavesTheLaneToOthers) {
  std::promise<void> go;
  std::atomic<bool> flag = false;
  const OpRef hold = Submit(Hold(Lane::kCompute, go));
  const OpRef wait = Submit({.lane = Lane::kMemory,
                             .body = [&] { return flag ? cuda::CUDA_SUCCESS : cuda::CUDA_ERROR_NOT_READY; },
                             .brief = true},
                            {hold});
  std::atomic<bool> written = false;
  const OpRef write = Submit({.lane = Lane::kMemory,
                              .body =
                                  [&] {
                                    written = true;
                                    return cuda::CUDA_SUCCESS;
                                  },
                              .brief = true},
                             {wait});
  // A kernel that waits for what is written after the wait: both must leave it the lane.
  const OpRef spin = Submit({Lane::kCompute, [&] {
                               flag = true;
                               while (!written) std::this_thread::yield();
                               return cuda::CUDA_SUCCESS;
                             }});
  go.set_value();
  Dispatcher::Wait(spin);
  Dispatcher::Wait(wait);
  Dispatcher::Wait(write);
}

TEST_F(DispatcherTest, AnErrorSkipsTheRestExceptWhatHearsOfErrors) {
  const OpRef bad = Submit({Lane::kCompute, [] { return cuda::CUDA_ERROR_ILLEGAL_ADDRESS; }});
  Task heard = Trace(Lane::kHost, 'h');
  heard.even_after_error = true;
  Submit(std::move(heard), {bad});
  Dispatcher::Wait(Submit(Trace(Lane::kCopy, 'x'), {bad}));
  dispatcher_.Synchronize();
  EXPECT_EQ(trace(), "h");
  EXPECT_EQ(errors_, 1);
  EXPECT_EQ(last_error_, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(dispatcher_.aborting());
}

TEST_F(DispatcherTest, WaitsForWorkOfAnother) {
  Dispatcher other({.on_error = [](CUresult) {}, .on_compute_idle = [] {}});
  std::promise<void> go;
  const OpRef hold = other.Submit(Hold(Lane::kHost, go), {});
  const OpRef follower = Submit(Trace(Lane::kCopy, 'f'), {hold});
  EXPECT_FALSE(Dispatcher::Done(follower));
  go.set_value();
  Dispatcher::Wait(follower);
  EXPECT_EQ(trace(), "f");
}

TEST_F(DispatcherTest, StopDropsWhatWaitsAndFreesThoseWhoWaitForIt) {
  std::promise<void> never;
  Dispatcher other({.on_error = [](CUresult) {}, .on_compute_idle = [] {}});
  const OpRef hold = other.Submit(Hold(Lane::kHost, never), {});
  const OpRef here = Submit(Trace(Lane::kCopy, 'h'), {hold});
  const OpRef next = Submit(Trace(Lane::kCopy, 'n'), {here});
  const OpRef there = other.Submit(Trace(Lane::kCopy, 't'), std::vector{next});
  dispatcher_.Stop();
  Dispatcher::Wait(there);
  EXPECT_TRUE(Dispatcher::Done(here) && Dispatcher::Done(next));
  EXPECT_EQ(trace(), "t");
  never.set_value();
}

TEST_F(DispatcherTest, RunningWorkLearnsOfStop) {
  std::promise<void> started;
  Submit({Lane::kCompute, [&] {
            started.set_value();
            while (!dispatcher_.aborting()) std::this_thread::yield();
            return cuda::CUDA_SUCCESS;
          }});
  started.get_future().wait();
  dispatcher_.Stop();
  EXPECT_EQ(errors_, 0);
}

TEST_F(DispatcherTest, TellsWhenTheComputeLaneIsIdle) {
  std::promise<void> idle;
  std::atomic<bool> told = false;
  Dispatcher dispatcher({.on_error = [](CUresult) {},
                         .on_compute_idle =
                             [&] {
                               if (!told.exchange(true)) idle.set_value();
                             }});
  dispatcher.Submit(Trace(Lane::kCompute, 'k'), {});
  idle.get_future().wait();
  EXPECT_EQ(trace(), "k");
}

TEST_F(DispatcherTest, ManyThreadsSubmit) {
  std::atomic<int> count = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      OpRef last;
      for (int i = 0; i < 200; ++i) {
        const Lane lane = (i + t) % 2 ? Lane::kCopy : Lane::kCompute;
        last = dispatcher_.Submit({lane,
                                   [&] {
                                     ++count;
                                     return cuda::CUDA_SUCCESS;
                                   }},
                                  std::vector{last});
      }
      Dispatcher::Wait(last);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace tessera::soft
