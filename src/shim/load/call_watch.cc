#include "shim/load/call_watch.h"

#include <atomic>

#include "shim/load/real.h"

namespace tessera::shim {
namespace {

std::atomic<void (*)()> watcher{nullptr};
std::atomic<void*> driver[kSymbols];  // where the slots lead while nobody watches; null before anybody did

}  // namespace

void WatchCalls(void (*seen)()) {
  if (seen) {
    for (unsigned i = 0; i < kSymbols; ++i) driver[i] = RealAddress(i);
    watcher = seen;
  }
  for (unsigned i = 0; i < kSymbols; ++i)
    __atomic_store_n(&tessera_real_table[i], seen ? tessera_stub_table[i] : driver[i].load(), __ATOMIC_RELEASE);
  if (!seen) watcher = nullptr;
}

}  // namespace tessera::shim

// Called by a slot's stub: where its caller is to go.
extern "C" [[gnu::visibility("hidden")]] void* tessera_find(unsigned symbol) {
  using namespace tessera::shim;
  LoadReal();
  if (auto* const seen = watcher.load()) seen();
  void* const at = driver[symbol].load();
  return at ? at : RealAddress(symbol);
}
