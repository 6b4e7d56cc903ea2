// Memory by handle (cuMemCreate …), and addresses for it. What can move is HandleMemory's; the rest, of the driver's
// own handles, is counted here: it lives until its last handle is released and its last mapping is gone.
#include <map>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/device/current.h"
#include "shim/device/ties.h"
#include "shim/handles/handle_memory.h"
#include "shim/memory/exports.h"
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

ForkMutex vmm_mutex;

std::map<CUmemGenericAllocationHandle, Physical>& Physicals() TESSERA_REQUIRES(vmm_mutex) {
  static auto* physicals = new std::map<CUmemGenericAllocationHandle, Physical>;
  return *physicals;
}

struct Mapping {
  CUmemGenericAllocationHandle handle = 0;
  size_t bytes = 0;
};

// Which memory is mapped, by address.
std::map<CUdeviceptr, Mapping>& Mappings() TESSERA_REQUIRES(vmm_mutex) {
  static auto* mappings = new std::map<CUdeviceptr, Mapping>;
  return *mappings;
}

// Counts one more handle or mapping of the memory behind `handle`, if it is ours.
void Add(CUmemGenericAllocationHandle handle, int Physical::* kind) {
  const MutexLock lock(vmm_mutex);
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
    const MutexLock lock(vmm_mutex);
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
    const MutexLock lock(vmm_mutex);
    ++(Physicals().try_emplace(handle, Physical{.handles = 0}).first->second.*kind);
    if (entry.room) Remember(handle, entry);
  }
};

// A handle of the driver's own is mapped there, if it is counted.
void NoteMapped(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle) {
  const MutexLock lock(vmm_mutex);
  const auto at = Physicals().find(handle);
  if (at == Physicals().end()) return;
  ++at->second.mappings;
  Mappings()[address] = {handle, bytes};
}

// The handle of the driver's own that is mapped around `address`, and counted; 0 if there is none.
CUmemGenericAllocationHandle MappedAt(CUdeviceptr address) {
  const MutexLock lock(vmm_mutex);
  auto at = Mappings().upper_bound(address);
  if (at == Mappings().begin()) return 0;
  --at;
  return address - at->first < at->second.bytes ? at->second.handle : 0;
}

// Unmaps by the driver, and counts.
CUresult DriverUnmap(CUdeviceptr address, size_t bytes) {
  std::map<CUdeviceptr, Mapping> unmapped;
  {
    const MutexLock lock(vmm_mutex);
    for (;;) {
      const auto at = Mappings().lower_bound(address);
      if (at == Mappings().end() || at->first - address >= bytes) break;
      unmapped.insert(Mappings().extract(at));
    }
  }
  std::vector<Dropped> dropped;
  for (const auto& [at, mapping] : unmapped) dropped.emplace_back(mapping.handle, &Physical::mappings);
  const CUresult result = REAL_AS(cuMemUnmap, CUdeviceptr, size_t)(address, bytes);
  for (const Dropped& mapping : dropped) mapping.Settle(result);
  if (result != CUDA_SUCCESS) {
    const MutexLock lock(vmm_mutex);
    Mappings().merge(unmapped);
  }
  return result;
}

HandleMemory& Movable() { return HandleMemory::Instance(); }

}  // namespace

TESSERA_HOOK cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr hint,
                                 unsigned long long flags) {
  const auto result = ReserveAddresses(address, bytes, alignment, hint, flags);
  return result ? *result : REAL(cuMemAddressReserve)(address, bytes, alignment, hint, flags);
}

TESSERA_HOOK cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  const auto result = Movable().FreeAddresses(address, bytes);
  return result ? *result : REAL(cuMemAddressFree)(address, bytes);
}

TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                         unsigned long long flags) {
  if (const auto result = Movable().Create(handle, bytes, prop, flags)) return *result;
  const auto make = [=] { return REAL(cuMemCreate)(handle, bytes, prop, flags); };
  if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    const CUresult result = make();
    if (result == CUDA_SUCCESS) NoteTie(wire::Tie::kHostMemory);
    return result;
  }
  return Counted(RoomOf(Attachment::Of(prop->location.id)), nullptr, ChargeOf(bytes), wire::PinReason::kVmm, make, [=] {
    const MutexLock lock(vmm_mutex);
    Physicals()[*handle] = {};
    return *handle;
  });
}

TESSERA_HOOK cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType type, unsigned long long flags) {
  if (const auto result = Movable().Export(shareable, handle, type, flags)) return *result;
  const CUresult result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
  if (result == CUDA_SUCCESS) ChangeReason(handle, wire::PinReason::kExported);
  return result;
}

TESSERA_HOOK cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  const auto result = Movable().Properties(prop, handle);
  return result ? *result : REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
}

TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const auto result = Movable().Release(handle)) return *result;
  const Dropped dropped(handle, &Physical::handles);
  const CUresult result = REAL(cuMemRelease)(handle);
  dropped.Settle(result);
  return result;
}

TESSERA_HOOK cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (const auto result = Movable().Retain(handle, address)) return *result;
  // Memory from cuMemAlloc has no handle.
  if (Paging* paging = Paging::Of(address); paging && !paging->Heap().Reserved().Around(address))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = REAL(cuMemRetainAllocationHandle)(handle, pointer);
  if (result == CUDA_SUCCESS) Add(*handle, &Physical::handles);
  return result;
}

TESSERA_HOOK cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
  const auto mapped = Movable().Map(address, bytes, offset, handle, flags);
  const CUresult result = mapped ? *mapped : REAL(cuMemMap)(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS) NoteMapped(address, bytes, handle);
  return result;
}

TESSERA_HOOK cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (const auto result = Movable().Unmap(address, bytes, DriverUnmap)) return *result;
  const CUresult result = DriverUnmap(address, bytes);
  if (result == CUDA_SUCCESS) Movable().NoteUnmapped(address, bytes);
  return result;
}

TESSERA_HOOK cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses, size_t count) {
  const auto result = Movable().SetAccess(address, bytes, accesses, count);
  return result ? *result : REAL(cuMemSetAccess)(address, bytes, accesses, count);
}

TESSERA_HOOK cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  const auto result = Movable().GetAccess(flags, location, address);
  return result ? *result : REAL(cuMemGetAccess)(flags, location, address);
}

// A multicast object has memory for as long as it lives, and the shim does not follow that.
TESSERA_HOOK cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle handle,
                                size_t from, size_t bytes, unsigned long long flags) {
  CUmemGenericAllocationHandle driver = 0;
  CUresult result = Movable().FixForMulticast(handle, &driver);
  if (result == CUDA_SUCCESS) result = REAL(cuMulticastBindMem)(object, offset, driver, from, bytes, flags);
  if (result == CUDA_SUCCESS) ChangeReason(handle, wire::PinReason::kMulticast);
  return result;
}

TESSERA_HOOK cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address, size_t bytes,
                                 unsigned long long flags) {
  Paging* paging = Paging::Of(address);
  // Blocks of the heap: the driver binds memory of pools, too.
  const bool block = paging && !paging->Heap().Reserved().Around(address);
  CUresult result = block ? PinForDevice(*paging, address, bytes) : Movable().FixForMulticastAt(address);
  if (result == CUDA_SUCCESS) result = REAL(cuMulticastBindAddr)(object, offset, address, bytes, flags);
  if (const auto handle = MappedAt(address); result == CUDA_SUCCESS && handle != 0)
    ChangeReason(handle, wire::PinReason::kMulticast);
  return result;
}
