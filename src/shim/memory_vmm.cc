// Physical memory by handle (cuMemCreate …): it lives until its last handle is released and its last mapping is gone.
#include <map>
#include <mutex>

#include "shim/hook.h"
#include "shim/ledger.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

struct Physical {
  int handles = 1;
  int mappings = 0;
};

std::mutex mutex;

std::map<CUmemGenericAllocationHandle, Physical>& Physicals() {
  static auto* physicals = new std::map<CUmemGenericAllocationHandle, Physical>;
  return *physicals;
}

// Where what is mapped, by address.
std::map<CUdeviceptr, CUmemGenericAllocationHandle>& Mappings() {
  static auto* mappings = new std::map<CUdeviceptr, CUmemGenericAllocationHandle>;
  return *mappings;
}

// Applies `change` to the memory behind `handle`, if it is ours, and gives its charge back when nothing refers to it.
template <typename Change>
void Update(CUmemGenericAllocationHandle handle, Change change) {
  {
    std::lock_guard lock(mutex);
    const auto at = Physicals().find(handle);
    if (at == Physicals().end()) return;
    change(at->second);
    if (at->second.handles > 0 || at->second.mappings > 0) return;
    Physicals().erase(at);
  }
  GiveBack(handle);
}

}  // namespace

TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                         unsigned long long flags) {
  const auto make = [=] { return REAL(cuMemCreate)(handle, bytes, prop, flags); };
  if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return make();
  return Counted(Attachment::Of(prop->location.id), nullptr, ChargeOf(bytes), make, [=] {
    std::lock_guard lock(mutex);
    Physicals()[*handle] = {};
    return *handle;
  });
}

TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle handle) {
  const CUresult result = REAL(cuMemRelease)(handle);
  if (result == CUDA_SUCCESS) Update(handle, [](Physical& physical) { --physical.handles; });
  return result;
}

TESSERA_HOOK cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
  if (result == CUDA_SUCCESS) Update(*handle, [](Physical& physical) { ++physical.handles; });
  return result;
}

TESSERA_HOOK cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
  const CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS) {
    Update(handle, [](Physical& physical) { ++physical.mappings; });
    std::lock_guard lock(mutex);
    Mappings()[address] = handle;
  }
  return result;
}

TESSERA_HOOK cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const CUresult result = REAL(cuMemUnmap)(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  for (;;) {
    CUmemGenericAllocationHandle handle;
    {
      std::lock_guard lock(mutex);
      const auto at = Mappings().lower_bound(address);
      if (at == Mappings().end() || at->first - address >= bytes) return result;
      handle = at->second;
      Mappings().erase(at);
    }
    Update(handle, [](Physical& physical) { --physical.mappings; });
  }
}
