#include "shim/memory/sync_memops.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/gate/capture.h"
#include "shim/load/hook.h"
#include "shim/memory/exports.h"

TESSERA_HOOK cuStreamSynchronize(tessera::cuda::CUstream);

namespace tessera::shim {

using namespace cuda;

namespace {

ForkMutex sync_mutex;
std::atomic<std::size_t> synced_count{0};  // as many as there are in Blocks()

std::vector<pager::Block>& Blocks() TESSERA_REQUIRES(sync_mutex) {
  static auto* blocks = new std::vector<pager::Block>;  // outlives the program's own destructors
  return *blocks;
}

template <typename Is>
void EraseIf(Is is) {
  if (synced_count.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(sync_mutex);
  std::erase_if(Blocks(), is);
  synced_count = Blocks().size();
}

}  // namespace

CUresult SetSyncMemops(Paging& paging, CUdeviceptr address, bool on) {
  const auto block = paging.Heap().Find(address);
  if (!block || block->unmapped) return CUDA_ERROR_INVALID_VALUE;
  // As the driver says (H200, 580.159.04). A program that asks is about to register the memory with a device all the
  // same.
  if (block->reserved) {
    const CUresult pinned = on ? PinForDevice(paging, block->begin, block->bytes) : CUDA_SUCCESS;
    return pinned == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : pinned;
  }
  ForgetSyncMemops(*block);
  if (!on) return CUDA_SUCCESS;
  if (const CUresult pinned = PinForDevice(paging, block->begin, block->bytes); pinned != CUDA_SUCCESS) return pinned;
  const MutexLock lock(sync_mutex);
  Blocks().push_back(*block);
  synced_count = Blocks().size();
  return CUDA_SUCCESS;
}

bool HasSyncMemops(CUdeviceptr address) {
  if (synced_count.load(std::memory_order_relaxed) == 0) return false;
  const MutexLock lock(sync_mutex);
  return std::any_of(Blocks().begin(), Blocks().end(),
                     [=](const pager::Block& each) { return address - each.begin < each.bytes; });
}

void ForgetSyncMemops(const pager::Block& block) {
  EraseIf([&](const pager::Block& each) { return each.begin == block.begin; });
}

void ForgetSyncMemopsOf(CUcontext context) {
  EraseIf([=](const pager::Block& each) { return each.context == context; });
}

CUresult AfterMemop(CUresult result, CUstream stream) {
  if (result != CUDA_SUCCESS || synced_count.load(std::memory_order_relaxed) == 0 || AnyCapture()) return result;
  return cuStreamSynchronize(stream);
}

}  // namespace tessera::shim
