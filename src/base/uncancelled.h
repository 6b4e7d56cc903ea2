#pragma once

#include <pthread.h>

#include "base/mutex.h"

namespace tessera {

// Keeps the calling thread from being cancelled (pthread_cancel) while it lives. A thread of the program's that ended
// in the middle of our code would keep our mutexes locked for good.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Holds a mutex under which functions are called that a thread can be cancelled in, as the driver's are.
class TESSERA_SCOPED_CAPABILITY UncancelledLock {
 public:
  explicit UncancelledLock(Mutex& mutex) TESSERA_ACQUIRE(mutex) : lock_(mutex) {}
  ~UncancelledLock() TESSERA_RELEASE() {}
  UncancelledLock(const UncancelledLock&) = delete;

 private:
  const Uncancelled uncancelled_;  // first: as long as the lock
  MutexLock lock_;
};

}  // namespace tessera
