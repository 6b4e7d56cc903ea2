#include "shim/process/thread.h"

#include <pthread.h>
#include <signal.h>

namespace tessera::shim {

int StartThread(const char* name, void* (*main)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int failed = pthread_create(&thread, nullptr, main, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed) return failed;
  pthread_setname_np(thread, name);
  pthread_detach(thread);
  return 0;
}

}  // namespace tessera::shim
