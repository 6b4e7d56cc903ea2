#include "soft/device/green_context.h"

#include <set>

#include "base/mutex.h"

namespace tessera::soft {
namespace {

struct Greens {
  Mutex mutex;
  std::set<const void*> known TESSERA_GUARDED_BY(mutex);
};

Greens& TheGreens() {
  static Greens& greens = *new Greens;
  return greens;
}

}  // namespace

GreenContext& GreenContext::Make(Context& primary, std::uint32_t multiprocessors) {
  auto& made = *new GreenContext{.primary = primary, .multiprocessors = multiprocessors};
  Greens& greens = TheGreens();
  const MutexLock lock(greens.mutex);
  greens.known.insert(&made);
  return made;
}

GreenContext* GreenContext::FromHandle(const void* handle) {
  Greens& greens = TheGreens();
  const MutexLock lock(greens.mutex);
  if (!greens.known.contains(handle)) return nullptr;
  return static_cast<GreenContext*>(const_cast<void*>(handle));
}

}  // namespace tessera::soft
