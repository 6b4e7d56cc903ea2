#include "base/fork_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <vector>

namespace tessera {
namespace {

// Runs `child` in a forked child. Its exit status; 99 where it did not end within a minute (then it hung on a mutex).
template <typename Child>
int InChild(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    _exit(child());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

// Holds mutexes in a thread of its own while it lives.
class Holder {
 public:
  explicit Holder(std::vector<Mutex*> mutexes) {
    thread_ = std::thread([this, mutexes = std::move(mutexes)]() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
      for (Mutex* mutex : mutexes) mutex->Lock();
      held_.set_value();
      done_.get_future().wait();
      for (Mutex* mutex : mutexes) mutex->Unlock();
    });
    held_.get_future().wait();
  }
  ~Holder() {
    done_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> held_, done_;
  std::thread thread_;
};

int CountListed() {
  int count = 0;
  ForkMutex::ForEach([&](ForkMutex&) { ++count; });
  return count;
}

int TryAll(const std::vector<Mutex*>& mutexes) TESSERA_NO_THREAD_SAFETY_ANALYSIS {
  for (Mutex* mutex : mutexes)
    if (!mutex->TryLock()) return 1;
  return 0;
}

TEST(ForkMutex, IsFreeInAChildWhateverThreadHeldIt) {
  ForkMutex first, second, third;
  const std::vector<Mutex*> all{&first, &second, &third};
  const Holder holder({&first, &third});
  EXPECT_EQ(TryAll({&first}), 1);
  EXPECT_EQ(InChild([&] { return TryAll(all); }), 0);
  EXPECT_EQ(TryAll({&first}), 1) << "the parent's is held still";
}

TEST(ForkMutex, AnOrdinaryMutexStaysLocked) {
  Mutex mutex;
  const Holder holder({&mutex});
  EXPECT_EQ(InChild([&] { return TryAll({&mutex}); }), 1);
}

TEST(ForkMutex, LeavesTheListWhenItEnds) {
  const int before = CountListed();
  {
    ForkMutex first;
    auto second = std::make_unique<ForkMutex>();
    ForkMutex third;
    EXPECT_EQ(CountListed(), before + 3);
    second.reset();
    EXPECT_EQ(CountListed(), before + 2);
  }
  EXPECT_EQ(CountListed(), before);
}

int acted = 0;

TEST(ForkMutex, WhatIsToBeDoneInChildrenIsDoneThereOnly) {
  const auto act = +[] { ++acted; };
  OnForkInChild(act);
  OnForkInChild(act);
  EXPECT_EQ(InChild([] { return acted; }), 1);
  EXPECT_EQ(acted, 0);
}

}  // namespace
}  // namespace tessera
