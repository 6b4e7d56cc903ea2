// Objects of other programs, and of other APIs. CUDA's IPC handles: the driver makes and opens handles of its own
// allocations. Handles of memory in the pager's heap are the shim's, and the daemon passes that memory from program to
// program. Descriptors by which devices reach memory (dma-buf) always come from the driver, and so do all other objects
// of this kind: only that a program has what the driver's checkpoint cannot save is noted.
#include <string.h>

#include "shim/device/current.h"
#include "shim/device/ties.h"
#include "shim/handles/handle_memory.h"
#include "shim/load/real.h"
#include "shim/memory/exports.h"
#include "shim/memory/imports.h"
#include "shim/memory/paging.h"
#include "shim/process/say.h"
#include "shim/session/session.h"

using namespace tessera;
using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// A handle of the shim's: bytes with which no handle of the driver's begins, a key, and zeros.
constexpr char kMagic[16] = "tessera memory\n";

struct Handle {
  char magic[sizeof kMagic];
  wire::ExportKey key;
  char nothing[32];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));

bool IsOurs(const CUipcMemHandle& handle) { return memcmp(handle.reserved, kMagic, sizeof kMagic) == 0; }

// The base address of the memory of one of our handles.
CUresult Open(CUdeviceptr* address, const CUipcMemHandle& handle) {
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  if (!Session::Instance().Managed()) {
    Say("an IPC handle cannot be opened: its memory belongs to a program under Tessera; start this one with 'tessera "
        "run', too");
    return CUDA_ERROR_INVALID_VALUE;
  }
  Handle ours;
  memcpy(&ours, &handle, sizeof ours);
  if (IsExport(ours.key)) return CUDA_ERROR_INVALID_CONTEXT;  // as the driver says of a process's own
  const Attachment* attachment = CurrentAttachment();
  if (!attachment) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = ImportMemory({attachment->Gpu(), attachment->Device()}, ours.key, address);
  if (result == CUDA_SUCCESS) NoteTie(wire::Tie::kImported);
  return result;
}

CUresult Noted(CUresult result, wire::Tie tie) {
  if (result == CUDA_SUCCESS) NoteTie(tie);
  return result;
}

}  // namespace

TESSERA_HOOK cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Paging* paging = handle ? Paging::Of(address) : nullptr;
  if (!paging) {
    NoteTie(wire::Tie::kImported);  // of small memory, or of pools: others may have it from now on
    return REAL(cuIpcGetMemHandle)(handle, address);
  }
  const auto block = paging->Heap().Find(address);
  // As the driver says of memory of pools, and of cuMemMap.
  if (block && (block->owner || block->reserved)) return CUDA_ERROR_INVALID_VALUE;
  Handle ours{};
  const CUresult result = ExportMemory(*paging, address, &ours.key);
  if (result != CUDA_SUCCESS) return result;
  memcpy(ours.magic, kMagic, sizeof kMagic);
  memcpy(handle, &ours, sizeof ours);
  return CUDA_SUCCESS;
}

TESSERA_HOOK cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  if (IsOurs(handle)) return Open(address, handle);
  NoteTie(wire::Tie::kImported);
  return REAL(cuIpcOpenMemHandle)(address, handle, flags);
}

TESSERA_HOOK cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  if (IsOurs(handle)) return Open(address, handle);
  NoteTie(wire::Tie::kImported);
  return REAL(cuIpcOpenMemHandle_v2)(address, handle, flags);
}

TESSERA_HOOK cuIpcCloseMemHandle(CUdeviceptr address) {
  return CloseImport(address) ? CUDA_SUCCESS : REAL(cuIpcCloseMemHandle)(address);
}

TESSERA_HOOK cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t bytes, int type,
                                           unsigned long long flags) {
  HandleMemory::Instance().NoteInDevice(address, bytes);
  if (Paging* paging = Paging::Of(address)) {
    const CUresult pinned = PinForDevice(*paging, address, bytes);
    // What is mapped at addresses of the program's own is not the heap's where it cannot be moved.
    const bool driver = pinned == CUDA_ERROR_INVALID_VALUE && paging->Heap().Reserved().Around(address);
    if (pinned != CUDA_SUCCESS && !driver) return pinned;
  }
  return REAL(cuMemGetHandleForAddressRange)(handle, address, bytes, type, flags);
}

TESSERA_HOOK cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable, int type) {
  return Noted(
      REAL_AS(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle*, void*, int)(handle, shareable, type),
      wire::Tie::kImported);
}

TESSERA_HOOK cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* shareable, int type,
                                                unsigned long long flags) {
  return Noted(REAL_AS(cuMemPoolImportFromShareableHandle, CUmemoryPool*, void*, int, unsigned long long)(
                   pool, shareable, type, flags),
               wire::Tie::kImported);
}

TESSERA_HOOK cuIpcGetEventHandle(void* handle, CUevent event) {
  return Noted(REAL_AS(cuIpcGetEventHandle, void*, CUevent)(handle, event), wire::Tie::kImported);
}

TESSERA_HOOK cuIpcOpenEventHandle(CUevent* event, CUipcMemHandle handle) {  // both handles are 64 bytes
  return Noted(REAL_AS(cuIpcOpenEventHandle, CUevent*, CUipcMemHandle)(event, handle), wire::Tie::kImported);
}

TESSERA_HOOK cuImportExternalMemory(void** memory, const void* description) {
  return Noted(REAL_AS(cuImportExternalMemory, void**, const void*)(memory, description), wire::Tie::kExternal);
}

TESSERA_HOOK cuImportExternalSemaphore(void** semaphore, const void* description) {
  return Noted(REAL_AS(cuImportExternalSemaphore, void**, const void*)(semaphore, description), wire::Tie::kExternal);
}

TESSERA_HOOK cuGraphicsGLRegisterBuffer(void** resource, unsigned buffer, unsigned flags) {
  return Noted(REAL_AS(cuGraphicsGLRegisterBuffer, void**, unsigned, unsigned)(resource, buffer, flags),
               wire::Tie::kExternal);
}

TESSERA_HOOK cuGraphicsGLRegisterImage(void** resource, unsigned image, unsigned target, unsigned flags) {
  return Noted(REAL_AS(cuGraphicsGLRegisterImage, void**, unsigned, unsigned, unsigned)(resource, image, target, flags),
               wire::Tie::kExternal);
}

TESSERA_HOOK cuGraphicsEGLRegisterImage(void** resource, void* image, unsigned flags) {
  return Noted(REAL_AS(cuGraphicsEGLRegisterImage, void**, void*, unsigned)(resource, image, flags),
               wire::Tie::kExternal);
}
