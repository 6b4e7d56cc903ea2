#include "shim/order/graph_blocks.h"

namespace tessera::shim {

using namespace cuda;

namespace {

std::atomic<int> dropped_in_process{0};

}  // namespace

GraphBlocks::Hold* GraphBlocks::Add(const pager::Block& block) {
  const MutexLock lock(mutex_);
  states_[block.begin] = {.id = block.id};
  return new Hold{*this, block.begin, block.id};
}

void GraphBlocks::Drop(void* data) {
  Hold* hold = static_cast<Hold*>(data);
  std::atomic<Hold*>& dropped = hold->blocks.dropped_;
  ++dropped_in_process;
  hold->next = dropped.load();
  while (!dropped.compare_exchange_weak(hold->next, hold)) continue;
}

bool GraphBlocks::AnyDropped() { return dropped_in_process.load(std::memory_order_relaxed) > 0; }

std::vector<UnsettledFree> GraphBlocks::TakeDropped() {
  std::vector<UnsettledFree> taken;
  for (Hold* hold = dropped_.exchange(nullptr); hold;) {
    const Hold* ended = hold;
    hold = hold->next;
    --dropped_in_process;
    const MutexLock lock(mutex_);
    const auto at = states_.find(ended->begin);
    if (at != states_.end() && at->second.id == ended->id) {
      at->second.held = false;
      if (!at->second.left) {
        taken.push_back({{.begin = ended->begin, .id = ended->id, .owner = &pool_}, at->second.context});
        states_.erase(at);
      }
    }
    delete ended;
  }
  return taken;
}

bool GraphBlocks::Has(CUdeviceptr begin, std::uint64_t id) const {
  const MutexLock lock(mutex_);
  const auto at = states_.find(begin);
  return at != states_.end() && at->second.id == id;
}

void GraphBlocks::Leave(CUdeviceptr begin) {
  const MutexLock lock(mutex_);
  if (const auto at = states_.find(begin); at != states_.end()) at->second.left = true;
}

bool GraphBlocks::Left(CUdeviceptr begin) const {
  const MutexLock lock(mutex_);
  const auto at = states_.find(begin);
  return at != states_.end() && at->second.left;
}

std::optional<CUresult> GraphBlocks::Free(const pager::Block& block, CUcontext context) {
  if (block.owner != &pool_) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto at = states_.find(block.begin);
  if (at == states_.end() || at->second.id != block.id) return std::nullopt;
  if (!at->second.left) return CUDA_ERROR_INVALID_VALUE;
  if (!at->second.held) {
    states_.erase(at);
    return std::nullopt;
  }
  at->second.left = false;
  at->second.context = context;
  return CUDA_SUCCESS;
}

void GraphBlocks::Forget() {
  const MutexLock lock(mutex_);
  states_.clear();
  pool_.Forget();
}

}  // namespace tessera::shim
