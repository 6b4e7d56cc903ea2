#pragma once

#include <pthread.h>

namespace tessera::shim {

// While it lives, nobody cancels the calling thread (pthread_cancel): one that ended in the middle of the shim would
// take its mutexes along.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace tessera::shim
