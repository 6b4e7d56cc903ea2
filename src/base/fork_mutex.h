// Mutexes that are free again in the child of a fork(2), all on one list.
#pragma once

#include <atomic>

#include "base/mutex.h"

namespace tessera {

// A Mutex of code that lives in other people's programs, where any thread may fork at any time. The child has only the
// thread that forked: a mutex that another one held would stay locked forever. So each ForkMutex is on a list from its
// construction on, and in the child all of them are remade before anything else runs there. The data behind a mutex may
// be half changed in the child: functions of OnForkInChild repair it or drop it.
class TESSERA_CAPABILITY("mutex") ForkMutex : public Mutex {
 public:
  ForkMutex();
  ~ForkMutex();

  // Calls `visit` for each ForkMutex that exists. For tests: no other thread may make or destroy one meanwhile.
  template <typename Visit>
  static void ForEach(Visit&& visit) {
    for (ForkMutex* at = first_; at; at = at->next_) visit(*at);
  }

 private:
  friend void RemakeForkMutexes();

  // A change of the list is one store, so that a child finds the list whole whenever the parent forked.
  static std::atomic<ForkMutex*> first_;
  std::atomic<ForkMutex*> next_{nullptr};
};

// Has `act` called in each forked child, once the mutexes are free again; in the order of these calls. At most 8, of
// static functions.
void OnForkInChild(void (*act)());

}  // namespace tessera
