#pragma once

#include <pthread.h>
#include <time.h>

#include "base/mutex.h"

namespace tessera::shim {

// A POSIX condition variable. CondVar wraps the C++ library's, which needs a glibc newer than 2.28.
class Condition {
 public:
  void Wait(Mutex& mutex) TESSERA_REQUIRES(mutex) { pthread_cond_wait(&condition_, mutex.NativeHandle()); }
  // False: the time on CLOCK_REALTIME has passed.
  bool WaitUntil(Mutex& mutex, const timespec& until) TESSERA_REQUIRES(mutex) {
    return pthread_cond_timedwait(&condition_, mutex.NativeHandle(), &until) == 0;
  }
  void NotifyAll() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace tessera::shim
