// A mutex in memory that several processes map.
#pragma once

#include <errno.h>
#include <pthread.h>

#include "base/thread_annotations.h"

namespace tessera::soft {

// A mutex between processes that outlives its owners: Lock() succeeds where the owner has died. What the owner left
// half done is the reader's to mind. Lock it with RobustLock.
class TESSERA_CAPABILITY("mutex") RobustMutex {
 public:
  void Initialize() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  void Lock() TESSERA_ACQUIRE() {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  void Unlock() TESSERA_RELEASE() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

// Holds a RobustMutex from its construction to its destruction.
class TESSERA_SCOPED_CAPABILITY RobustLock {
 public:
  explicit RobustLock(RobustMutex& mutex) TESSERA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~RobustLock() TESSERA_RELEASE() { mutex_.Unlock(); }
  RobustLock(const RobustLock&) = delete;

 private:
  RobustMutex& mutex_;
};

}  // namespace tessera::soft
