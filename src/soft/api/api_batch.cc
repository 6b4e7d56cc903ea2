// Batches of copies. One has no order among its copies; here they are made in their own.
#include <cstdint>
#include <optional>
#include <vector>

#include "soft/api/stream_variants.h"
#include "soft/exec/copy.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

struct BatchCopy {
  CUDA_MEMCPY3D shape;
  CUmemcpySrcAccessOrder order;
};

CUresult Failed(std::size_t* failed, std::size_t index, CUresult result) {
  if (failed != nullptr) *failed = index;
  return result;
}

bool IsOrder(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

// Makes all the copies or none. The legacy stream takes no batch, as CUDA documents.
CUresult Submit(const std::vector<BatchCopy>& copies, CUstream handle, std::size_t* failed) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return Failed(failed, SIZE_MAX, CUDA_ERROR_INVALID_VALUE);
  return WithStream(handle, [&](const auto& stream) {
    std::vector<CopyWork> all;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      CopyWork& work = all.emplace_back();
      const CUresult result = ResolveCopy(copies[i].shape, &work.copy, stream->context.device().index());
      if (result != CUDA_SUCCESS) return Failed(failed, i, RefuseWork(stream, result));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool captured = IsCaptured(stream);
      bool wait = copies[i].order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL || all[i].copy.destination.pageable;
      if (!captured && all[i].copy.source.pageable) all[i].staged = Stage(&all[i].copy);
      OpRef op;
      CUresult result = tessera::soft::Submit(stream, std::move(all[i]), &op);
      if (result == CUDA_SUCCESS && wait && !captured) result = WaitFor(op, stream->context);
      if (result != CUDA_SUCCESS) return Failed(failed, i, result);
    }
    return CUDA_SUCCESS;
  });
}

CUresult SubmitLinear(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                      CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
                      std::size_t* failed, CUstream stream) {
  const auto wrong = [&] { return Failed(failed, SIZE_MAX, CUDA_ERROR_INVALID_VALUE); };
  if (to == nullptr || from == nullptr || sizes == nullptr || attributes == nullptr || starts == nullptr)
    return wrong();
  if (count == 0 || attribute_count == 0 || attribute_count > count || starts[0] != 0) return wrong();
  std::vector<BatchCopy> copies;
  for (std::size_t i = 0; i < attribute_count; ++i) {
    const std::size_t end = i + 1 < attribute_count ? starts[i + 1] : count;
    if (starts[i] >= end || end > count || !IsOrder(attributes[i].srcAccessOrder)) return wrong();
    for (std::size_t at = starts[i]; at < end; ++at) {
      copies.push_back({LinearCopy(CU_MEMORYTYPE_UNIFIED, to[at], CU_MEMORYTYPE_UNIFIED, from[at], sizes[at]),
                        attributes[i].srcAccessOrder});
    }
  }
  return Submit(copies, stream, failed);
}

// Of pointers only: elements are bytes. A length or height of 0 is that of the extent.
std::optional<BatchCopy> VolumeOf(const CUDA_MEMCPY3D_BATCH_OP& copy) {
  const CUextent3D& extent = copy.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0 || !IsOrder(copy.srcAccessOrder)) return {};
  for (const CUmemcpy3DOperand* side : {&copy.dst, &copy.src}) {
    if (side->type != CU_MEMCPY_OPERAND_TYPE_POINTER) return {};
    const auto& at = side->op.ptr;
    if ((at.rowLength != 0 && at.rowLength < extent.width) || (at.layerHeight != 0 && at.layerHeight < extent.height)) {
      return {};
    }
  }
  const auto& to = copy.dst.op.ptr;
  const auto& from = copy.src.op.ptr;
  CUDA_MEMCPY3D shape = LinearCopy(CU_MEMORYTYPE_UNIFIED, to.ptr, CU_MEMORYTYPE_UNIFIED, from.ptr, extent.width);
  shape.srcPitch = from.rowLength != 0 ? from.rowLength : extent.width;
  shape.srcHeight = from.layerHeight != 0 ? from.layerHeight : extent.height;
  shape.dstPitch = to.rowLength != 0 ? to.rowLength : extent.width;
  shape.dstHeight = to.layerHeight != 0 ? to.layerHeight : extent.height;
  shape.Height = extent.height;
  shape.Depth = extent.depth;
  return BatchCopy{shape, copy.srcAccessOrder};
}

CUresult SubmitVolumes(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* list, std::size_t* failed, unsigned long long flags,
                       CUstream stream) {
  if (count == 0 || list == nullptr || flags != 0) return Failed(failed, SIZE_MAX, CUDA_ERROR_INVALID_VALUE);
  std::vector<BatchCopy> copies;
  for (std::size_t i = 0; i < count; ++i) {
    const auto copy = VolumeOf(list[i]);
    if (!copy) return Failed(failed, i, CUDA_ERROR_INVALID_VALUE);
    copies.push_back(*copy);
  }
  return Submit(copies, stream, failed);
}

}  // namespace

// CUDA 12.8's functions say which copy failed; CUDA 13's do not.

TESSERA_CUDA_API cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                                    CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
                                    std::size_t* failed, CUstream stream) {
  return SubmitLinear(to, from, sizes, count, attributes, starts, attribute_count, failed, stream);
}
TESSERA_EXPORT_PTSZ(cuMemcpyBatchAsync)

TESSERA_CUDA_API cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                                       CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
                                       CUstream stream) {
  return SubmitLinear(to, from, sizes, count, attributes, starts, attribute_count, nullptr, stream);
}
TESSERA_EXPORT_PTSZ(cuMemcpyBatchAsync_v2)

TESSERA_CUDA_API cuMemcpy3DBatchAsync(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* list, std::size_t* failed,
                                      unsigned long long flags, CUstream stream) {
  return SubmitVolumes(count, list, failed, flags, stream);
}
TESSERA_EXPORT_PTSZ(cuMemcpy3DBatchAsync)

TESSERA_CUDA_API cuMemcpy3DBatchAsync_v2(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags,
                                         CUstream stream) {
  return SubmitVolumes(count, list, nullptr, flags, stream);
}
TESSERA_EXPORT_PTSZ(cuMemcpy3DBatchAsync_v2)

}  // namespace tessera::soft
