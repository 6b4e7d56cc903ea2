#include "base/mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace tessera {
namespace {

struct Box {
  Mutex mutex;
  CondVar changed;
  int value TESSERA_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, WaitsUntilAnotherThreadHasChangedWhatItGuards) {
  Box box;
  std::thread other([&] {
    MutexLock lock(box.mutex);
    box.value = 1;
    box.changed.NotifyAll();
  });
  {
    MutexLock lock(box.mutex);
    while (box.value == 0) box.changed.Wait(box.mutex);
    EXPECT_EQ(box.value, 1);
  }
  other.join();
}

TEST(MutexTest, AWaitEndsWhenItsTimeHasPassed) {
  Box box;
  MutexLock lock(box.mutex);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  while (box.changed.WaitUntil(box.mutex, end)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), end);
}

// To the analysis the child is the thread that locked the mutex.
int LockForkAndTryInTheChild(Mutex& mutex) TESSERA_NO_THREAD_SAFETY_ANALYSIS {
  mutex.Lock();
  const pid_t child = fork();
  if (child == 0) {
    mutex.RemakeAfterFork();
    _exit(mutex.TryLock() ? 0 : 1);
  }
  mutex.Unlock();
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(MutexTest, IsFreeInAChildThatRemakesIt) {
  Mutex mutex;
  EXPECT_EQ(LockForkAndTryInTheChild(mutex), 0);
}

TEST(MutexTest, OneWriterOrManyReaders) {
  SharedMutex mutex;
  int value = 0;
  {
    ReaderLock one(mutex);
    std::thread([&] { ReaderLock another(mutex); }).join();
  }
  {
    WriterLock writer(mutex);
    value = 1;
  }
  ReaderLock reader(mutex);
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace tessera
