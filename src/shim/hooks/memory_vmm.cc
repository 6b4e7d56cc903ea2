// Physical memory by handle (cuMemCreate …): it lives until its last handle is released and its last mapping is gone.
#include <map>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/device/current.h"
#include "shim/memory/ledger.h"
#include "shim/memory/paging.h"

using namespace tessera;
using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

struct Physical {
  int handles = 1;
  int mappings = 0;
};

ForkMutex mutex;

std::map<CUmemGenericAllocationHandle, Physical>& Physicals() TESSERA_REQUIRES(mutex) {
  static auto* physicals = new std::map<CUmemGenericAllocationHandle, Physical>;
  return *physicals;
}

// Which memory is mapped, by address.
std::map<CUdeviceptr, CUmemGenericAllocationHandle>& Mappings() TESSERA_REQUIRES(mutex) {
  static auto* mappings = new std::map<CUdeviceptr, CUmemGenericAllocationHandle>;
  return *mappings;
}

// Counts one more handle or mapping of the memory behind `handle`, if it is ours.
void Add(CUmemGenericAllocationHandle handle, int Physical::* kind) {
  const MutexLock lock(mutex);
  const auto at = Physicals().find(handle);
  if (at != Physicals().end()) ++(at->second.*kind);
}

// A handle or mapping that ends. It is dropped before the driver is asked, because another thread may be given the same
// handle as soon as the memory is free.
struct Dropped {
  CUmemGenericAllocationHandle handle;
  int Physical::* kind;
  bool ours = false;
  Entry entry = {};  // if nothing refers to the memory any more

  Dropped(CUmemGenericAllocationHandle handle, int Physical::* kind) : handle(handle), kind(kind) {
    const MutexLock lock(mutex);
    const auto at = Physicals().find(handle);
    if (at == Physicals().end()) return;
    ours = true;
    --(at->second.*kind);
    if (at->second.handles > 0 || at->second.mappings > 0) return;
    Physicals().erase(at);
    entry = Forget(handle);
  }

  // The driver has answered: gives the charge back, or takes the drop back.
  void Settle(CUresult result) const {
    if (result == CUDA_SUCCESS) return GiveBack(entry);
    if (!ours) return;
    const MutexLock lock(mutex);
    ++(Physicals().try_emplace(handle, Physical{.handles = 0}).first->second.*kind);
    if (entry.room) Remember(handle, entry);
  }
};

}  // namespace

TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                         unsigned long long flags) {
  const auto make = [=] { return REAL(cuMemCreate)(handle, bytes, prop, flags); };
  if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return make();
  return Counted(RoomOf(Attachment::Of(prop->location.id)), nullptr, ChargeOf(bytes), wire::PinReason::kVmm, make, [=] {
    const MutexLock lock(mutex);
    Physicals()[*handle] = {};
    return *handle;
  });
}

TESSERA_HOOK cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType type, unsigned long long flags) {
  const CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
  if (result == CUDA_SUCCESS) ChangeReason(handle, wire::PinReason::kExported);
  return result;
}

TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Dropped dropped(handle, &Physical::handles);
  const CUresult result = REAL(cuMemRelease)(handle);
  dropped.Settle(result);
  return result;
}

TESSERA_HOOK cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  // Memory from cuMemAlloc has no handle.
  if (Paging::Of(reinterpret_cast<CUdeviceptr>(address))) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
  if (result == CUDA_SUCCESS) Add(*handle, &Physical::handles);
  return result;
}

TESSERA_HOOK cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
  const CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS) {
    Add(handle, &Physical::mappings);
    const MutexLock lock(mutex);
    Mappings()[address] = handle;
  }
  return result;
}

TESSERA_HOOK cuMemUnmap(CUdeviceptr address, size_t bytes) {
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> unmapped;
  {
    const MutexLock lock(mutex);
    for (;;) {
      const auto at = Mappings().lower_bound(address);
      if (at == Mappings().end() || at->first - address >= bytes) break;
      unmapped.insert(Mappings().extract(at));
    }
  }
  std::vector<Dropped> dropped;
  for (const auto& [at, handle] : unmapped) dropped.emplace_back(handle, &Physical::mappings);
  const CUresult result = REAL(cuMemUnmap)(address, bytes);
  for (const Dropped& mapping : dropped) mapping.Settle(result);
  if (result != CUDA_SUCCESS) {
    const MutexLock lock(mutex);
    Mappings().merge(unmapped);
  }
  return result;
}
