// Batches of copies. The driver takes a batch in which memory that was mapped is copied between two GPUs as it takes a
// single such copy (peer_copies.cc). So these copies are taken out of the batch, and made one by one by calls that name
// the contexts. The copies of a batch have no order among them.
#include <algorithm>
#include <optional>
#include <vector>

#include "shim/device/in_call.h"
#include "shim/gate/capture.h"
#include "shim/hooks/copy_contexts.h"
#include "shim/memory/paging.h"

using namespace tessera::cuda;
using namespace tessera::shim;

#define GATED(name, ...) extern "C" CUresult tessera_gated_##name(__VA_ARGS__)
GATED(cuMemcpyPeerAsync, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream);
GATED(cuMemcpyPeerAsync_ptsz, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, std::size_t, CUstream);
GATED(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER*, CUstream);
GATED(cuMemcpy3DPeerAsync_ptsz, const CUDA_MEMCPY3D_PEER*, CUstream);

namespace {

// The arguments of a linear batch.
struct Linear {
  CUdeviceptr* to;
  CUdeviceptr* from;
  std::size_t* sizes;
  std::size_t count;
  CUmemcpyAttributes* attributes;
  std::size_t* starts;  // of each of the attributes: the first copy that it is for
  std::size_t attribute_count;
};

bool IsOrder(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

// No batch may use the legacy stream. The driver says so.
bool IsLegacy(CUstream stream, bool per_thread) { return stream ? stream == CU_STREAM_LEGACY : !per_thread; }

// Whether the attributes are in order. If not, the driver says so.
bool IsSound(const Linear& batch) {
  if (!batch.to || !batch.from || !batch.sizes || !batch.attributes || !batch.starts) return false;
  if (batch.attribute_count == 0 || batch.attribute_count > batch.count || batch.starts[0] != 0) return false;
  for (std::size_t i = 0; i < batch.attribute_count; ++i) {
    const std::size_t end = i + 1 < batch.attribute_count ? batch.starts[i + 1] : batch.count;
    if (batch.starts[i] >= end || !IsOrder(batch.attributes[i].srcAccessOrder)) return false;
  }
  return true;
}

struct Named {
  std::size_t index;  // in the whole batch
  CopyContexts contexts;
};

// The copies of a batch that must name contexts, and the others.
struct Split {
  std::vector<Named> named;
  bool ends_in_call = false;      // some of them may not read their source after the call
  std::vector<std::size_t> rest;  // indices in the whole batch

  void Add(std::size_t index, const CopyContexts& contexts, CUmemcpySrcAccessOrder order) {
    named.push_back({index, contexts});
    ends_in_call |= order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  }
};

// What a batch says about the copy that failed: its index, or SIZE_MAX if the error is of no single one.
void Tell(std::size_t* failed, std::size_t index) {
  if (failed) *failed = index;
}

// Makes the copies of `split`: those that name contexts by `one(index, contexts)`, before them the others by
// `others(&failed)`, which says where in split.rest it failed.
template <typename Others, typename One>
CUresult Make(const Split& split, CUstream stream, std::size_t* failed, Others others, One one) {
  if (!split.rest.empty()) {
    std::size_t at = SIZE_MAX;
    if (const CUresult result = others(&at); result != CUDA_SUCCESS) {
      Tell(failed, at < split.rest.size() ? split.rest[at] : SIZE_MAX);
      return result;
    }
  }
  for (const Named& each : split.named) {
    if (const CUresult result = one(each.index, each.contexts); result != CUDA_SUCCESS) {
      Tell(failed, each.index);
      return result;
    }
  }
  if (!split.ends_in_call || AnyCapture()) return CUDA_SUCCESS;
  return REAL_AS(cuStreamSynchronize, CUstream)(stream ? stream : CU_STREAM_PER_THREAD);
}

// ---- linear copies ----

// `plain(batch, failed)` is the driver's own call.
template <typename Plain, typename Peer>
CUresult CopyLinear(const Linear& batch, bool per_thread, CUstream stream, std::size_t* failed, Plain plain,
                    Peer peer) {
  const InCall in_call;
  if (!SeveralPagings() || IsLegacy(stream, per_thread) || !IsSound(batch)) return plain(batch, failed);
  Split split;
  std::vector<CUdeviceptr> to, from;
  std::vector<std::size_t> sizes, starts;
  std::vector<CUmemcpyAttributes> attributes;
  for (std::size_t i = 0, kind = 0, last = SIZE_MAX; i < batch.count; ++i) {
    if (kind + 1 < batch.attribute_count && batch.starts[kind + 1] == i) ++kind;
    const auto contexts = batch.sizes[i] > 0 ? ContextsBetween(batch.to[i], batch.from[i]) : std::nullopt;
    if (contexts) {
      split.Add(i, *contexts, batch.attributes[kind].srcAccessOrder);
      continue;
    }
    if (kind != last) {
      attributes.push_back(batch.attributes[kind]);
      starts.push_back(to.size());
      last = kind;
    }
    split.rest.push_back(i);
    to.push_back(batch.to[i]);
    from.push_back(batch.from[i]);
    sizes.push_back(batch.sizes[i]);
  }
  if (split.named.empty()) return plain(batch, failed);
  const Linear rest{to.data(),         from.data(),   sizes.data(),     to.size(),
                    attributes.data(), starts.data(), attributes.size()};
  return Make(
      split, stream, failed, [&](std::size_t* at) { return plain(rest, at); },
      [&](std::size_t i, const CopyContexts& contexts) {
        return peer(batch.to[i], contexts.to, batch.from[i], contexts.from, batch.sizes[i], stream);
      });
}

// ---- copies of three dimensions ----

// The contexts that the copy must name. None where it is not a sound copy from pointer to pointer.
std::optional<CopyContexts> Between(const CUDA_MEMCPY3D_BATCH_OP& copy) {
  const CUextent3D& extent = copy.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0 || !IsOrder(copy.srcAccessOrder))
    return std::nullopt;
  for (const CUmemcpy3DOperand* side : {&copy.dst, &copy.src}) {
    if (side->type != CU_MEMCPY_OPERAND_TYPE_POINTER) return std::nullopt;
    const auto& at = side->op.ptr;
    if ((at.rowLength != 0 && at.rowLength < extent.width) || (at.layerHeight != 0 && at.layerHeight < extent.height))
      return std::nullopt;
  }
  return ContextsBetween(copy.dst.op.ptr.ptr, copy.src.op.ptr.ptr);
}

// Elements are bytes where no array is copied. A length or height of 0 means that of the extent.
CUDA_MEMCPY3D_PEER Peer(const CUDA_MEMCPY3D_BATCH_OP& copy, const CopyContexts& contexts) {
  const auto& to = copy.dst.op.ptr;
  const auto& from = copy.src.op.ptr;
  const CUextent3D& extent = copy.extent;
  return {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
          .srcDevice = from.ptr,
          .srcContext = contexts.from,
          .srcPitch = from.rowLength ? from.rowLength : extent.width,
          .srcHeight = from.layerHeight ? from.layerHeight : extent.height,
          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
          .dstDevice = to.ptr,
          .dstContext = contexts.to,
          .dstPitch = to.rowLength ? to.rowLength : extent.width,
          .dstHeight = to.layerHeight ? to.layerHeight : extent.height,
          .WidthInBytes = extent.width,
          .Height = extent.height,
          .Depth = extent.depth};
}

// `plain(count, copies, failed)` is the driver's own call.
template <typename Plain, typename PeerCopy>
CUresult CopyVolumes(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags, bool per_thread,
                     CUstream stream, std::size_t* failed, Plain plain, PeerCopy peer) {
  const InCall in_call;
  if (!SeveralPagings() || IsLegacy(stream, per_thread) || !copies || flags != 0) return plain(count, copies, failed);
  Split split;
  std::vector<CUDA_MEMCPY3D_BATCH_OP> rest;
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto contexts = Between(copies[i])) {
      split.Add(i, *contexts, copies[i].srcAccessOrder);
    } else {
      split.rest.push_back(i);
      rest.push_back(copies[i]);
    }
  }
  if (split.named.empty()) return plain(count, copies, failed);
  return Make(
      split, stream, failed, [&](std::size_t* at) { return plain(rest.size(), rest.data(), at); },
      [&](std::size_t i, const CopyContexts& contexts) {
        const CUDA_MEMCPY3D_PEER volume = Peer(copies[i], contexts);
        return peer(&volume, stream);
      });
}

}  // namespace

// CUDA 12.8's functions say which copy failed; CUDA 13's do not.
#define LINEAR_12(name, per_thread, peer)                                                                            \
  GATED(name, CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*, std::size_t, \
        std::size_t*, CUstream);                                                                                     \
  TESSERA_HOOK name(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,                       \
                    CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,                \
                    std::size_t* failed, CUstream stream) {                                                          \
    const auto plain = [=](const Linear& b, std::size_t* at) {                                                       \
      return tessera_gated_##name(b.to, b.from, b.sizes, b.count, b.attributes, b.starts, b.attribute_count, at,     \
                                  stream);                                                                           \
    };                                                                                                               \
    return CopyLinear({to, from, sizes, count, attributes, starts, attribute_count}, per_thread, stream, failed,     \
                      plain, tessera_gated_##peer);                                                                  \
  }
LINEAR_12(cuMemcpyBatchAsync, false, cuMemcpyPeerAsync)
LINEAR_12(cuMemcpyBatchAsync_ptsz, true, cuMemcpyPeerAsync_ptsz)

#define LINEAR_13(name, per_thread, peer)                                                                             \
  GATED(name, CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*, std::size_t,  \
        CUstream);                                                                                                    \
  TESSERA_HOOK name(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,                        \
                    CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,                 \
                    CUstream stream) {                                                                                \
    const auto plain = [=](const Linear& b, std::size_t*) {                                                           \
      return tessera_gated_##name(b.to, b.from, b.sizes, b.count, b.attributes, b.starts, b.attribute_count, stream); \
    };                                                                                                                \
    return CopyLinear({to, from, sizes, count, attributes, starts, attribute_count}, per_thread, stream, nullptr,     \
                      plain, tessera_gated_##peer);                                                                   \
  }
LINEAR_13(cuMemcpyBatchAsync_v2, false, cuMemcpyPeerAsync)
LINEAR_13(cuMemcpyBatchAsync_v2_ptsz, true, cuMemcpyPeerAsync_ptsz)

#define VOLUMES_12(name, per_thread, peer)                                                                            \
  GATED(name, std::size_t, CUDA_MEMCPY3D_BATCH_OP*, std::size_t*, unsigned long long, CUstream);                      \
  TESSERA_HOOK name(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t* failed, unsigned long long flags, \
                    CUstream stream) {                                                                                \
    const auto plain = [=](std::size_t n, CUDA_MEMCPY3D_BATCH_OP* list, std::size_t* at) {                            \
      return tessera_gated_##name(n, list, at, flags, stream);                                                        \
    };                                                                                                                \
    return CopyVolumes(count, copies, flags, per_thread, stream, failed, plain, tessera_gated_##peer);                \
  }
VOLUMES_12(cuMemcpy3DBatchAsync, false, cuMemcpy3DPeerAsync)
VOLUMES_12(cuMemcpy3DBatchAsync_ptsz, true, cuMemcpy3DPeerAsync_ptsz)

#define VOLUMES_13(name, per_thread, peer)                                                                          \
  GATED(name, std::size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);                                  \
  TESSERA_HOOK name(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags, CUstream stream) { \
    const auto plain = [=](std::size_t n, CUDA_MEMCPY3D_BATCH_OP* list, std::size_t*) {                             \
      return tessera_gated_##name(n, list, flags, stream);                                                          \
    };                                                                                                              \
    return CopyVolumes(count, copies, flags, per_thread, stream, nullptr, plain, tessera_gated_##peer);             \
  }
VOLUMES_13(cuMemcpy3DBatchAsync_v2, false, cuMemcpy3DPeerAsync)
VOLUMES_13(cuMemcpy3DBatchAsync_v2_ptsz, true, cuMemcpy3DPeerAsync_ptsz)
