// What the driver would say of memory that the pager's heap holds: the program must not see chunks, nor where they lie.
#include <atomic>

#include "shim/hook.h"
#include "shim/paging.h"
#include "shim/say.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// One attribute of a block. False: the driver's own answer is right.
bool AttributeOf(const tessera::pager::Block& block, CUdevice device, CUpointer_attribute attribute,
                 CUdeviceptr address, void* data) {
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
      *static_cast<int*>(data) = device;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(data) = block.begin;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<std::size_t*>(data) = block.bytes;
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned char*>(data) = 1;
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(data) = 0;
      return true;
    default:
      return false;
  }
}

template <typename Size>
CUresult AddressRange(CUdeviceptr address, CUdeviceptr* base, Size* bytes) {
  Paging* paging = Paging::Of(address);
  const auto block = paging->Heap().Find(address);
  if (!block) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = block->begin;
  if (bytes) *bytes = static_cast<Size>(block->bytes);
  return CUDA_SUCCESS;
}

}  // namespace

TESSERA_HOOK cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  Paging* paging = data ? Paging::Of(address) : nullptr;
  if (paging) {
    const auto block = paging->Heap().Find(address);
    if (!block) return CUDA_ERROR_INVALID_VALUE;
    if (AttributeOf(*block, paging->Device(), attribute, address, data)) return CUDA_SUCCESS;
  }
  return REAL(cuPointerGetAttribute)(data, attribute, address);
}

TESSERA_HOOK cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  // The driver fills in all that it knows, also about addresses that it does not know; then what it cannot know is set
  // right.
  const CUresult result = REAL(cuPointerGetAttributes)(count, attributes, data, address);
  Paging* paging = result == CUDA_SUCCESS && attributes && data ? Paging::Of(address) : nullptr;
  const auto block = paging ? paging->Heap().Find(address) : std::nullopt;
  for (unsigned i = 0; block && i < count; ++i) {
    if (data[i]) AttributeOf(*block, paging->Device(), attributes[i], address, data[i]);
  }
  return result;
}

TESSERA_HOOK cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  if (Paging::Of(address)) return AddressRange(address, base, bytes);
  return REAL(cuMemGetAddressRange_v2)(base, bytes, address);
}

// The driver makes handles of its own allocations only.
TESSERA_HOOK cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (!Paging::Of(address)) return REAL(cuIpcGetMemHandle)(handle, address);
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    Say("memory that can be swapped cannot be shared by IPC handles yet; start the program with TESSERA_SWAP=0");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Memory of another device of this process becomes reachable: the driver does that for its own allocations, and for
// the heap's it must be told. Without a word to the program: it is the peer that lets the current context in.
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
  return attachment->Pager()->Heap().AddPeer(own);
}
