// Mutexes of the standard library under names that clang's thread-safety analysis knows. libstdc++ annotates none of
// its own, so a member guarded by a std::mutex could not be checked.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "base/thread_annotations.h"

namespace tessera {

// A std::mutex. Lock it with MutexLock.
class TESSERA_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;

  void Lock() TESSERA_ACQUIRE() { mutex_.lock(); }
  void Unlock() TESSERA_RELEASE() { mutex_.unlock(); }
  bool TryLock() TESSERA_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

  // Makes the mutex anew, unlocked. For the child of a fork(2), whose only thread may find the mutex locked by a thread
  // that the child does not have.
  void RemakeAfterFork() TESSERA_NO_THREAD_SAFETY_ANALYSIS { new (&mutex_) std::mutex; }

  // For POSIX condition variables, where the C++ library's would need a newer C library.
  pthread_mutex_t* NativeHandle() { return mutex_.native_handle(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from its construction to its destruction, or to Unlock().
class TESSERA_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TESSERA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() TESSERA_RELEASE() {
    if (locked_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;

  void Unlock() TESSERA_RELEASE() {
    locked_ = false;
    mutex_.Unlock();
  }
  void Lock() TESSERA_ACQUIRE() {
    mutex_.Lock();
    locked_ = true;
  }

 private:
  Mutex& mutex_;
  bool locked_ = true;
};

// A std::condition_variable. Waits end without cause, too: call them in a loop that looks at the condition, which then
// is read under the lock in the eyes of the analysis.
class CondVar {
 public:
  void Wait(Mutex& mutex) TESSERA_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False: the time has passed.
  template <typename Clock, typename Duration>
  bool WaitUntil(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& end) TESSERA_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, end);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  template <typename Rep, typename Period>
  bool WaitFor(Mutex& mutex, const std::chrono::duration<Rep, Period>& time) TESSERA_REQUIRES(mutex) {
    return WaitUntil(mutex, std::chrono::steady_clock::now() + time);
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// A std::shared_mutex: many readers, or one writer.
class TESSERA_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;

  void Lock() TESSERA_ACQUIRE() { mutex_.lock(); }
  void Unlock() TESSERA_RELEASE() { mutex_.unlock(); }
  void LockShared() TESSERA_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() TESSERA_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a SharedMutex as its one writer.
class TESSERA_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) TESSERA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~WriterLock() TESSERA_RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Holds a SharedMutex as one of its readers.
class TESSERA_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) TESSERA_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.LockShared(); }
  ~ReaderLock() TESSERA_RELEASE_GENERIC() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace tessera
