#include "shim/memory/stream_memory.h"

#include "pager/heap/placement.h"
#include "shim/gate/capture.h"
#include "shim/load/green_contexts.h"
#include "shim/memory/paging.h"
#include "shim/order/stream_pools.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// No GPU has as much; below it, sizes can be rounded up.
constexpr std::uint64_t kTooMuch = std::uint64_t{1} << 60;

}  // namespace

CUresult StreamMemory::Allocate(StreamPool& pool, std::uint64_t bytes, const StreamName& stream, CUdeviceptr* address) {
  const bool is_default = stream.stream == CU_STREAM_LEGACY || stream.stream == CU_STREAM_PER_THREAD;
  if (is_default && !stream.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes >= kTooMuch) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t addresses = pager::AddressesOf(bytes);
  if (!pool.Use(addresses)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto block = paging_.pending_.TakeFrom(stream, bytes, &pool);
  if (!block) block = pool.TakeKept(bytes);
  if (!block && paging_.pending_.Any()) {
    Mark();
    FreeReached();
    block = pool.TakeKept(bytes);
  }
  if (block && Reuse(*block, pool, bytes)) {
    *address = block->begin;
    return CUDA_SUCCESS;
  }
  const CUresult result = AllocateNew(pool, bytes, address);
  if (result != CUDA_SUCCESS) pool.Refused(addresses);
  return result;
}

// Others may have got the memory of a block while the program had it: then it is freed.
bool StreamMemory::Reuse(const pager::Block& block, StreamPool& pool, std::uint64_t bytes) {
  if (paging_.heap_->Renew(block.begin, block.id, bytes, &pool)) return true;
  paging_.GiveBack(block);
  return false;
}

// The block belongs to no context: a pool is its device's. The program's context may be of another device.
CUresult StreamMemory::AllocateNew(StreamPool& pool, std::uint64_t bytes, CUdeviceptr* address) {
  const CUresult result = paging_.AllocateFor(nullptr, bytes, address);
  if (result != CUDA_SUCCESS) return result;
  paging_.heap_->Renew(*address, 0, bytes, &pool);
  pool.Reserve(pager::AddressesOf(bytes));
  CUdevice device = -1;
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) == CUDA_SUCCESS && device == paging_.device_)
    context_ = AllocatingContext();
  return CUDA_SUCCESS;
}

CUresult StreamMemory::AllocateForGraph(std::uint64_t bytes, CUdeviceptr* address, GraphBlocks::Hold** hold) {
  if (bytes >= kTooMuch) return CUDA_ERROR_OUT_OF_MEMORY;
  const RelaxedCapture relaxed;
  FreeDropped();
  const std::uint64_t addresses = pager::AddressesOf(bytes);
  if (!graphs_.Pool().Use(addresses)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = AllocateNew(graphs_.Pool(), bytes, address);
  const auto block = result == CUDA_SUCCESS ? paging_.heap_->Find(*address) : std::nullopt;
  if (!block) {
    graphs_.Pool().Refused(addresses);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  }
  *hold = graphs_.Add(*block);
  return CUDA_SUCCESS;
}

CUresult StreamMemory::Free(CUdeviceptr address, const StreamName& stream) {
  pager::Block block;
  if (!paging_.Freeable(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  if (block.owner == &graphs_.Pool()) {
    CUcontext context = stream.context;  // the current one may be another GPU's, or none
    if (!context) {
      const CUresult known = REAL_AS(cuStreamGetCtx, CUstream, CUcontext*)(stream.stream, &context);
      if (known != CUDA_SUCCESS) return known;
    }
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (const auto freed = graphs_.Free(block, context)) return *freed;
  }
  const CUresult result = paging_.pending_.AddBehind(block, stream);
  if (result == CUDA_SUCCESS && block.owner) OwnerOf(block)->Unuse(block);
  return result;
}

void StreamMemory::Trim(StreamPool& pool, std::uint64_t keep) {
  Mark();
  FreeReached();
  for (const pager::Block& block : pool.Release(keep)) paging_.GiveBack(block);
}

bool StreamMemory::ReleaseKept() {
  bool any = false;
  for (StreamPool* pool : PoolsOf(*this)) {
    for (const pager::Block& block : pool->Release(0)) {
      paging_.GiveBack(block);
      any = true;
    }
  }
  return any;
}

// A capture forbids to wait for work, which can wait; the rest is freed at once.
void StreamMemory::FreeDropped() {
  if (!GraphBlocks::AnyDropped()) return;
  for (const UnsettledFree& each : graphs_.TakeDropped()) {
    const auto block = paging_.heap_->Find(each.block.begin);
    if (!block || block->id != each.block.id) continue;
    graphs_.Pool().Unuse(*block);
    if (each.context) {
      paging_.pending_.Add({*block, each.context});
    } else {
      paging_.FreeNow(*block);
    }
  }
}

void StreamMemory::FreeReached() {
  FreeDropped();
  for (const pager::Block& block : paging_.pending_.TakeReached()) paging_.FreeNow(block);
}

void StreamMemory::FreeQuiet(GateKeeper& gates) {
  std::vector<pager::Block> quiet;
  gates.WhileItRuns([&] { quiet = paging_.pending_.TakeQuiet(); });
  for (const pager::Block& block : quiet) paging_.FreeNow(block);
  FreeDropped();
}

void StreamMemory::Mark() { paging_.pending_.Mark(); }

void StreamMemory::EndStream(CUstream stream) { paging_.pending_.EndStream(stream); }

void StreamMemory::DropEvents(CUcontext context) { paging_.pending_.DropEventsOf(context); }

void StreamMemory::LeaveContext(CUcontext context, CUcontext heir) { paging_.pending_.LeaveContext(context, heir); }

void StreamMemory::EndContext(CUcontext context) {
  CUcontext ended = context;
  context_.compare_exchange_strong(ended, nullptr);
  paging_.pending_.ForgetAllOf(context);
  FreeReached();
  if (!context) graphs_.Forget();
}

void FreeReachedEverywhere() {
  if (!PendingFrees::AnyInProcess() && !GraphBlocks::AnyDropped()) return;
  Paging::ForEach([](Paging& paging) { paging.Ordered().FreeReached(); });
}

void MarkEverywhere() {
  Paging::ForEach([](Paging& paging) { paging.Ordered().Mark(); });
}

void EndStreamEverywhere(CUstream stream) {
  Paging::ForEach([=](Paging& paging) { paging.Ordered().EndStream(stream); });
}

void DropEventsEverywhere(CUcontext context) {
  Paging::ForEach([=](Paging& paging) { paging.Ordered().DropEvents(context); });
}

void LeaveContextEverywhere(CUcontext context, CUcontext heir) {
  Paging::ForEach([=](Paging& paging) { paging.Ordered().LeaveContext(context, heir); });
}

void EndContextEverywhere(CUcontext context) {
  Paging::ForEach([=](Paging& paging) { paging.Ordered().EndContext(context); });
}

}  // namespace tessera::shim
