#include "base/fork_mutex.h"

#include <pthread.h>
#include <sched.h>

namespace tessera {
namespace {

constexpr int kMostActs = 8;
std::atomic<void (*)()> acts[kMostActs];
// Held for a few instructions by whoever changes the list. No Mutex: it could not be on the list itself.
std::atomic<bool> changing{false};

class Changing {
 public:
  Changing() {
    while (changing.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Changing() { changing.store(false, std::memory_order_release); }
  Changing(const Changing&) = delete;
};

}  // namespace

constinit std::atomic<ForkMutex*> ForkMutex::first_{nullptr};

void RemakeForkMutexes() {
  changing = false;
  ForkMutex::ForEach([](ForkMutex& mutex) { mutex.RemakeAfterFork(); });
  for (auto& slot : acts)
    if (auto* const act = slot.load()) act();
}

static void HandleForks() {
  static std::atomic<bool> handles{false};
  if (!handles.exchange(true)) pthread_atfork(nullptr, nullptr, RemakeForkMutexes);
}

ForkMutex::ForkMutex() {
  HandleForks();
  const Changing alone;
  next_ = first_.load();
  first_ = this;
}

ForkMutex::~ForkMutex() {
  const Changing alone;
  std::atomic<ForkMutex*>* link = &first_;
  while (*link != this) link = &link->load()->next_;
  link->store(next_);
}

void OnForkInChild(void (*act)()) {
  HandleForks();
  for (auto& slot : acts) {
    void (*empty)() = nullptr;
    if (slot.load() == act || slot.compare_exchange_strong(empty, act)) return;
  }
}

}  // namespace tessera
