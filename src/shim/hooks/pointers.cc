// Answers questions about memory of the pager's heap, or of another program, as the driver does about its own
// allocations: the program must not see chunks, nor where they lie.
#include "shim/device/current.h"
#include "shim/handles/handle_memory.h"
#include "shim/memory/imports.h"
#include "shim/memory/paging.h"
#include "shim/memory/sync_memops.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// Memory that the driver does not know as the program does.
struct Seen {
  std::optional<tessera::pager::Block> block;  // none: an address of ours that is nobody's, or the driver's
  CUdevice device = 0;
  bool imported = false;
  std::optional<tessera::pager::Reservations::Range> reserved;  // addresses of the program's own that it lies in
  bool drivers = false;                                         // a handle of the driver's own is mapped there
};

// At addresses of the program's own. What cannot move there lies in pieces, and looks as if it did not.
Seen MappedAt(const Paging& paging, CUdeviceptr address, std::optional<tessera::pager::Block> block,
              const tessera::pager::Reservations::Range& reserved) {
  if (block && !block->unmapped) return Seen{block, paging.Device(), false, reserved};
  const auto mapped = HandleMemory::Instance().MappedAt(address);
  if (!mapped) return Seen{.reserved = reserved};
  if (!mapped->prop) return Seen{.reserved = reserved, .drivers = true};
  block = {.begin = mapped->begin, .bytes = mapped->bytes, .id = mapped->id, .reserved = true};
  return Seen{block, mapped->prop->location.id, false, reserved};
}

std::optional<Seen> SeenAt(CUdeviceptr address) {
  if (Paging* paging = Paging::Of(address)) {
    const auto block = paging->Heap().Find(address);
    const auto reserved = paging->Heap().Reserved().Around(address);
    return reserved ? MappedAt(*paging, address, block, *reserved) : Seen{.block = block, .device = paging->Device()};
  }
  CUdevice device = 0;
  if (const auto block = ImportAt(address, &device)) return Seen{block, device, true};
  return std::nullopt;
}

unsigned long long HandleTypesAt(CUdeviceptr address) {
  const auto mapped = HandleMemory::Instance().MappedAt(address);
  return mapped && mapped->prop ? static_cast<unsigned long long>(mapped->prop->requestedHandleTypes) : 0;
}

// One attribute. False: the driver's own answer is right.
bool AttributeOf(const Seen& seen, CUpointer_attribute attribute, CUdeviceptr address, void* data) {
  if (seen.drivers && seen.reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
    return *static_cast<CUdeviceptr*>(data) = seen.reserved->begin, true;
  if (seen.drivers && seen.reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
    return *static_cast<std::size_t*>(data) = seen.reserved->bytes, true;
  if (!seen.block) return false;
  const tessera::pager::Block& block = *seen.block;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = block.context;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = CU_MEMORYTYPE_DEVICE;  // also while it is in host memory
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = address;
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = block.id;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned char*>(data) = 0;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = seen.device;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<unsigned char*>(data) = !seen.imported && !block.owner && !block.reserved;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      if (!block.owner) return false;
      *static_cast<CUmemoryPool*>(data) = OwnerOf(block)->Handle();
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = seen.reserved ? seen.reserved->begin : block.begin;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = seen.reserved ? seen.reserved->bytes : block.bytes;
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(data) = block.begin;
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<std::size_t*>(data) = block.bytes;
      return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<unsigned char*>(data) = HasSyncMemops(address);
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned char*>(data) = 1;
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(data) = block.reserved ? HandleTypesAt(address) : 0;
      return true;
    default:
      return false;
  }
}

}  // namespace

TESSERA_HOOK cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (const auto seen = data ? SeenAt(address) : std::nullopt) {
    if (!seen->block && !seen->drivers) return CUDA_ERROR_INVALID_VALUE;
    if (AttributeOf(*seen, attribute, address, data)) return CUDA_SUCCESS;
  }
  return REAL(cuPointerGetAttribute)(data, attribute, address);
}

TESSERA_HOOK cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  // The driver fills in all that it knows, also about addresses that it does not know; then what it cannot know is set
  // right.
  const CUresult result = REAL(cuPointerGetAttributes)(count, attributes, data, address);
  const auto seen = result == CUDA_SUCCESS && attributes && data ? SeenAt(address) : std::nullopt;
  for (unsigned i = 0; seen && i < count; ++i) {
    if (data[i]) AttributeOf(*seen, attributes[i], address, data[i]);
  }
  return result;
}

// The driver refuses it for mapped memory (H200, 580.159.04: CUDA_ERROR_NOT_SUPPORTED).
TESSERA_HOOK cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  Paging* paging = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? Paging::Of(address) : nullptr;
  const bool on = paging && *static_cast<const unsigned*>(value) != 0;
  if (on) HandleMemory::Instance().NoteInDevice(address, 1);
  // What cannot move at addresses of the program's own is the driver's.
  if (!paging || (!paging->Heap().Find(address) && paging->Heap().Reserved().Around(address)))
    return REAL(cuPointerSetAttribute)(value, attribute, address);
  return SetSyncMemops(*paging, address, on);
}

TESSERA_HOOK cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  const auto seen = SeenAt(address);
  if (!seen || seen->drivers) return REAL(cuMemGetAddressRange_v2)(base, bytes, address);
  if (!seen->block) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = seen->block->begin;
  if (bytes) *bytes = seen->block->bytes;
  return CUDA_SUCCESS;
}

// The current context gets access to the memory of another device. The driver arranges that for its own allocations;
// for the heap's it must be asked.
TESSERA_HOOK cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  const CUresult result = REAL(cuCtxEnablePeerAccess)(peer, flags);
  CUdevice own = -1, other = -1;
  CUcontext before = nullptr;
  if (result != CUDA_SUCCESS || REAL_AS(cuCtxGetDevice, CUdevice*)(&own) != CUDA_SUCCESS) return result;
  if (REAL_AS(cuCtxPushCurrent_v2, CUcontext)(peer) != CUDA_SUCCESS) return result;
  const CUresult got = REAL_AS(cuCtxGetDevice, CUdevice*)(&other);
  REAL_AS(cuCtxPopCurrent_v2, CUcontext*)(&before);
  Attachment* attachment = got == CUDA_SUCCESS ? Attachment::Of(other) : nullptr;
  if (!attachment || !attachment->Pager() || own == other) return result;
  return AddPeer(*attachment->Pager(), own);
}
