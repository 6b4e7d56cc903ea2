// Copies between the memory of two GPUs. The driver finds the way between blocks of its own allocators, with peer
// access or without. Memory that was mapped (cuMemMap), as all of the pager's and all that is imported, has to be open
// to the GPU that copies: else the driver answers CUDA_ERROR_INVALID_VALUE (H200, 580.159.04), unless the call names a
// context for each side. So such a copy becomes one that does.
#include <bit>
#include <optional>

#include "shim/device/in_call.h"
#include "shim/hooks/copy_contexts.h"
#include "shim/memory/sync_memops.h"

using namespace tessera::cuda;
using namespace tessera::shim;

#define GATED(name, ...) extern "C" CUresult tessera_gated_##name(__VA_ARGS__)
GATED(cuMemcpyPeer, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t);
GATED(cuMemcpyPeer_ptds, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t);
GATED(cuMemcpyPeerAsync, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream);
GATED(cuMemcpyPeerAsync_ptsz, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream);
GATED(cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER*);
GATED(cuMemcpy3DPeer_ptds, const CUDA_MEMCPY3D_PEER*);
GATED(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER*, CUstream);
GATED(cuMemcpy3DPeerAsync_ptsz, const CUDA_MEMCPY3D_PEER*, CUstream);

namespace {

bool IsLinear(CUmemorytype type) { return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED; }

std::optional<CUDA_MEMCPY3D_PEER> Between(const CUDA_MEMCPY3D* copy) {
  if (!copy || !IsLinear(copy->dstMemoryType) || !IsLinear(copy->srcMemoryType)) return std::nullopt;
  const auto contexts = ContextsBetween(copy->dstDevice, copy->srcDevice);
  if (!contexts) return std::nullopt;
  auto peer = std::bit_cast<CUDA_MEMCPY3D_PEER>(*copy);
  peer.dstContext = contexts->to;
  peer.srcContext = contexts->from;
  return peer;
}

std::optional<CUDA_MEMCPY3D_PEER> Between(const CUDA_MEMCPY2D* copy) {
  if (!copy) return std::nullopt;
  const CUDA_MEMCPY3D volume = {.srcXInBytes = copy->srcXInBytes,
                                .srcY = copy->srcY,
                                .srcMemoryType = copy->srcMemoryType,
                                .srcDevice = copy->srcDevice,
                                .srcPitch = copy->srcPitch,
                                .srcHeight = copy->srcY + copy->Height,
                                .dstXInBytes = copy->dstXInBytes,
                                .dstY = copy->dstY,
                                .dstMemoryType = copy->dstMemoryType,
                                .dstDevice = copy->dstDevice,
                                .dstPitch = copy->dstPitch,
                                .dstHeight = copy->dstY + copy->Height,
                                .WidthInBytes = copy->WidthInBytes,
                                .Height = copy->Height,
                                .Depth = 1};
  return Between(&volume);
}

}  // namespace

// A plain copy on a default stream and a copy that names contexts both let the work of the two GPUs before it end
// first, and return before they end themselves.
#define LINEAR(name, peer, stream)                                                                   \
  GATED(name, CUdeviceptr, CUdeviceptr, std::size_t);                                                \
  TESSERA_HOOK name(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {                           \
    const InCall in_call;                                                                            \
    const auto contexts = ContextsBetween(to, from);                                                 \
    return AfterMemop(contexts ? tessera_gated_##peer(to, contexts->to, from, contexts->from, bytes) \
                               : tessera_gated_##name(to, from, bytes),                              \
                      stream);                                                                       \
  }
LINEAR(cuMemcpy, cuMemcpyPeer, CU_STREAM_LEGACY)
LINEAR(cuMemcpy_ptds, cuMemcpyPeer_ptds, CU_STREAM_PER_THREAD)
LINEAR(cuMemcpyDtoD_v2, cuMemcpyPeer, CU_STREAM_LEGACY)
LINEAR(cuMemcpyDtoD_v2_ptds, cuMemcpyPeer_ptds, CU_STREAM_PER_THREAD)

#define LINEAR_ASYNC(name, peer)                                                            \
  GATED(name, CUdeviceptr, CUdeviceptr, std::size_t, CUstream);                             \
  TESSERA_HOOK name(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) { \
    const InCall in_call;                                                                   \
    if (const auto contexts = ContextsBetween(to, from))                                    \
      return tessera_gated_##peer(to, contexts->to, from, contexts->from, bytes, stream);   \
    return tessera_gated_##name(to, from, bytes, stream);                                   \
  }
LINEAR_ASYNC(cuMemcpyAsync, cuMemcpyPeerAsync)
LINEAR_ASYNC(cuMemcpyAsync_ptsz, cuMemcpyPeerAsync_ptsz)
LINEAR_ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyPeerAsync)
LINEAR_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyPeerAsync_ptsz)

#define SHAPED(name, Shape, peer, stream)                                                          \
  GATED(name, const Shape*);                                                                       \
  TESSERA_HOOK name(const Shape* copy) {                                                           \
    const InCall in_call;                                                                          \
    const auto named = Between(copy);                                                              \
    return AfterMemop(named ? tessera_gated_##peer(&*named) : tessera_gated_##name(copy), stream); \
  }
SHAPED(cuMemcpy2D_v2, CUDA_MEMCPY2D, cuMemcpy3DPeer, CU_STREAM_LEGACY)
SHAPED(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, cuMemcpy3DPeer_ptds, CU_STREAM_PER_THREAD)
SHAPED(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, cuMemcpy3DPeer, CU_STREAM_LEGACY)
SHAPED(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, cuMemcpy3DPeer_ptds, CU_STREAM_PER_THREAD)
SHAPED(cuMemcpy3D_v2, CUDA_MEMCPY3D, cuMemcpy3DPeer, CU_STREAM_LEGACY)
SHAPED(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, cuMemcpy3DPeer_ptds, CU_STREAM_PER_THREAD)

#define SHAPED_ASYNC(name, Shape, peer)                                                 \
  GATED(name, const Shape*, CUstream);                                                  \
  TESSERA_HOOK name(const Shape* copy, CUstream stream) {                               \
    const InCall in_call;                                                               \
    if (const auto named = Between(copy)) return tessera_gated_##peer(&*named, stream); \
    return tessera_gated_##name(copy, stream);                                          \
  }
SHAPED_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, cuMemcpy3DPeerAsync)
SHAPED_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, cuMemcpy3DPeerAsync_ptsz)
SHAPED_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, cuMemcpy3DPeerAsync)
SHAPED_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, cuMemcpy3DPeerAsync_ptsz)
