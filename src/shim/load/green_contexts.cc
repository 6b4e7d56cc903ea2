#include "shim/load/green_contexts.h"

#include <atomic>
#include <map>

#include "base/fork_mutex.h"

namespace tessera::shim {
namespace {

ForkMutex green_mutex;
std::atomic<std::size_t> count{0};

std::map<cuda::CUgreenCtx, GreenContext>& Contexts() TESSERA_REQUIRES(green_mutex) {
  static auto* contexts = new std::map<cuda::CUgreenCtx, GreenContext>;
  return *contexts;
}

}  // namespace

void AddGreenContext(cuda::CUgreenCtx green, const GreenContext& context) {
  const MutexLock lock(green_mutex);
  Contexts()[green] = context;
  count = Contexts().size();
}

std::optional<GreenContext> FindGreenContext(cuda::CUgreenCtx green) {
  const MutexLock lock(green_mutex);
  const auto at = Contexts().find(green);
  return at == Contexts().end() ? std::nullopt : std::optional(at->second);
}

void ForgetGreenContext(cuda::CUgreenCtx green) {
  const MutexLock lock(green_mutex);
  Contexts().erase(green);
  count = Contexts().size();
}

cuda::CUcontext OwningContext(cuda::CUcontext context) {
  if (count.load(std::memory_order_relaxed) == 0) return context;
  const MutexLock lock(green_mutex);
  for (const auto& [green, known] : Contexts()) {
    if (known.context == context) return known.primary;
  }
  return context;
}

}  // namespace tessera::shim
