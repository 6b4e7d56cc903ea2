#include "shim/memory/pending_frees.h"

#include <algorithm>
#include <atomic>

#include "shim/gate/capture.h"
#include "shim/load/hook.h"

TESSERA_HOOK cuEventSynchronize(tessera::cuda::CUevent);

namespace tessera::shim {

using namespace cuda;

namespace {

std::atomic<std::int64_t> in_process{0};

}  // namespace

bool PendingFrees::AnyInProcess() { return in_process.load(std::memory_order_relaxed) > 0; }

bool PendingFrees::Add(const pager::Block& block) { return AddBehind(block, nullptr, nullptr); }

bool PendingFrees::AddBehind(const pager::Block& block, CUevent event, CUcontext context) {
  const MutexLock lock(mutex_);
  if (Around(block)) return false;
  pending_.push_back({block, event, context});
  ++in_process;
  return true;
}

bool PendingFrees::Around(const pager::Block& block) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const Pending& each) { return each.block.id == block.id; });
}

bool PendingFrees::Has(const pager::Block& block) const {
  const MutexLock lock(mutex_);
  return Around(block);
}

bool PendingFrees::Any() const {
  const MutexLock lock(mutex_);
  return !pending_.empty();
}

std::vector<pager::Block> PendingFrees::TakeReached() {
  std::vector<pager::Block> taken;
  const MutexLock lock(mutex_);
  if (pending_.empty() || AnyCapture()) return taken;
  const RelaxedCapture relaxed;  // another thread's capture may begin meanwhile
  std::erase_if(pending_, [&](const Pending& each) {
    // Any error but this is the context's: its GPU does nothing any more.
    if (!each.event || REAL_AS(cuEventQuery, CUevent)(each.event) == CUDA_ERROR_NOT_READY) return false;
    REAL_AS(cuEventDestroy_v2, CUevent)(each.event);
    taken.push_back(each.block);
    return true;
  });
  in_process -= static_cast<std::int64_t>(taken.size());
  return taken;
}

std::vector<pager::Block> PendingFrees::TakeUnsettled(bool all) {
  std::vector<Pending> pending;
  {
    const MutexLock lock(mutex_);
    if (pending_.empty() || AnyCapture()) return {};
    const auto kept =
        std::partition(pending_.begin(), pending_.end(), [=](const Pending& each) { return !all && each.event; });
    pending.assign(kept, pending_.end());
    pending_.erase(kept, pending_.end());
    in_process -= static_cast<std::int64_t>(pending.size());
  }
  std::vector<pager::Block> taken;
  for (const Pending& each : pending) {
    if (each.event) {
      cuEventSynchronize(each.event);  // the hook: the end of the work is seen at once
      REAL_AS(cuEventDestroy_v2, CUevent)(each.event);
    }
    taken.push_back(each.block);
  }
  return taken;
}

void PendingFrees::ForgetAllOf(CUcontext context) {
  const MutexLock lock(mutex_);
  in_process -= static_cast<std::int64_t>(
      std::erase_if(pending_, [=](const Pending& each) { return each.block.context == context; }));
  for (Pending& each : pending_)
    if (each.context == context) each.event = nullptr;
}

}  // namespace tessera::shim
