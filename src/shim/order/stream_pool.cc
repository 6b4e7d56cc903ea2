#include "shim/order/stream_pool.h"

#include <algorithm>
#include <iterator>

#include "pager/heap/placement.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// The driver's pools grow by multiples of this (tests/hw/programs/runtime/pools.cu prints it), which programs see.
constexpr std::uint64_t kGrowth = 32u << 20;

}  // namespace

std::uint64_t StreamPool::ReservedLocked() const { return pager::RoundUp(reserved_, kGrowth); }

bool StreamPool::Use(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (max_bytes_ != 0 && (bytes > max_bytes_ || used_ > max_bytes_ - bytes)) return false;
  used_ += bytes;
  return true;
}

void StreamPool::Refused(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  used_ -= std::min(used_, bytes);
}

void StreamPool::Unuse(const pager::Block& block) {
  const MutexLock lock(mutex_);
  used_high_ = std::max(used_high_, used_);
  used_ -= std::min(used_, pager::AddressesOf(block.bytes));
}

void StreamPool::Reserve(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  reserved_ += bytes;
  reserved_high_ = std::max(reserved_high_, ReservedLocked());
}

void StreamPool::Return(const pager::Block& block) {
  const MutexLock lock(mutex_);
  reserved_ -= std::min(reserved_, pager::AddressesOf(block.bytes));
}

bool StreamPool::Empty() const {
  const MutexLock lock(mutex_);
  return reserved_ == 0;
}

bool StreamPool::Keep(const pager::Block& block) {
  const MutexLock lock(mutex_);
  if (block.exported || ReservedLocked() > threshold_) return false;
  kept_.emplace(pager::AddressesOf(block.bytes), block);
  return true;
}

bool StreamPool::Keeps(const pager::Block& block) const {
  const MutexLock lock(mutex_);
  const auto [first, last] = kept_.equal_range(pager::AddressesOf(block.bytes));
  return std::any_of(first, last, [&](const auto& each) { return each.second.id == block.id; });
}

std::optional<pager::Block> StreamPool::TakeKept(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto at = kept_.find(pager::AddressesOf(bytes));
  if (at == kept_.end()) return std::nullopt;
  const pager::Block block = at->second;
  kept_.erase(at);
  return block;
}

std::vector<pager::Block> StreamPool::Release(std::uint64_t bytes) {
  std::vector<pager::Block> taken;
  const MutexLock lock(mutex_);
  for (std::uint64_t left = reserved_; left > bytes && !kept_.empty();) {
    const auto largest = std::prev(kept_.end());
    left -= std::min(left, largest->first);
    taken.push_back(largest->second);
    kept_.erase(largest);
  }
  return taken;
}

void StreamPool::Forget() {
  const MutexLock lock(mutex_);
  used_ = reserved_ = 0;
  kept_.clear();
}

bool StreamPool::Get(CUmemPool_attribute attribute, void* value) const {
  const MutexLock lock(mutex_);
  const auto answer = [&](std::uint64_t number) {
    *static_cast<std::uint64_t*>(value) = number;
    return true;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return answer(ReservedLocked());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return answer(reserved_high_);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return answer(used_);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return answer(std::max(used_high_, used_));
    default:
      return false;
  }
}

void StreamPool::Set(CUmemPool_attribute attribute, const void* value) {
  const MutexLock lock(mutex_);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) threshold_ = *static_cast<const std::uint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) reserved_high_ = ReservedLocked();
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) used_high_ = used_;
}

}  // namespace tessera::shim
