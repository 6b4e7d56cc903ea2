#include "shim/hooks/copy_contexts.h"

#include "shim/load/current_context.h"
#include "shim/load/real.h"
#include "shim/memory/imports.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// One side of a copy: a context that can reach it, and whether that must be named.
struct Side {
  CUcontext context = nullptr;
  bool named = false;
};

// A context of the device, for memory of pools, which belongs to none. Null if none is known.
CUcontext ContextOf(Paging& paging, CUdevice current) {
  return paging.Device() == current ? CurrentContext() : paging.Ordered().Context();
}

// None for memory that the driver will refuse, or that is the host's.
std::optional<Side> SideAt(CUdeviceptr address, CUdevice current) {
  Paging* paging = Paging::Of(address);
  const auto block = paging ? paging->Heap().Find(address) : std::nullopt;
  // What is mapped at addresses of the program's own is the driver's where it cannot be moved.
  if (paging && (block || !paging->Heap().Reserved().Around(address))) {
    const CUcontext context = !block || block->context ? nullptr : ContextOf(*paging, current);
    if (!block || !(block->context || context)) return std::nullopt;
    return Side{context ? context : block->context, !Reaches(*paging, current)};
  }
  CUdevice device = 0;
  if (const auto import = ImportAt(address, &device)) return Side{import->context, !ImportReaches(address, current)};
  unsigned type = 0;
  CUcontext context = nullptr;
  const auto ask = REAL_AS(cuPointerGetAttribute, void*, CUpointer_attribute, CUdeviceptr);
  if (ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE ||
      ask(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address) != CUDA_SUCCESS || !context)
    return std::nullopt;
  return Side{context};
}

}  // namespace

std::optional<CopyContexts> ContextsBetween(CUdeviceptr to, CUdeviceptr from) {
  CUdevice current = 0;
  if (!SeveralPagings() || REAL_AS(cuCtxGetDevice, CUdevice*)(&current) != CUDA_SUCCESS) return std::nullopt;
  const auto destination = SideAt(to, current);
  const auto source = destination ? SideAt(from, current) : std::nullopt;
  if (!source || !(destination->named || source->named)) return std::nullopt;
  return CopyContexts{destination->context, source->context};
}

}  // namespace tessera::shim
