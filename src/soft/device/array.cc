#include "soft/device/array.h"

#include <algorithm>

#include "soft/device/context.h"
#include "soft/device/heap.h"

namespace tessera::soft {
namespace {

using namespace cuda;

using Arrays = Handles<Array, CUarray>;
using MipmappedArrays = Handles<MipmappedArray, CUmipmappedArray>;

// Far beyond what fits, and small enough that no product overflows.
constexpr std::size_t kMaxExtent = 1 << 20;

CUresult AllocateArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, std::shared_ptr<Array>* made) {
  auto array = std::make_shared<Array>();
  array->context = &context;
  array->shape = shape;
  array->element_bytes = ElementBytes(shape.Format, shape.NumChannels);
  const bool sparse = (shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
  if (sparse) return CUDA_ERROR_NOT_SUPPORTED;
  if (array->element_bytes == 0 || shape.Width == 0 || shape.Width > kMaxExtent || shape.Height > kMaxExtent ||
      shape.Depth > kMaxExtent) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  array->bytes = array->row_bytes() * array->rows() * array->slices();
  if (const CUresult result = context.heap().Allocate(array->bytes, &array->data); result != CUDA_SUCCESS) {
    return result;
  }
  *made = std::move(array);
  return CUDA_SUCCESS;
}

}  // namespace

std::size_t ElementBytes(CUarray_format format, unsigned channels) {
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4 * channels;
  }
  return 0;
}

CUresult MakeArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, CUarray* handle) {
  std::shared_ptr<Array> array;
  if (const CUresult result = AllocateArray(context, shape, &array); result != CUDA_SUCCESS) return result;
  *handle = Arrays::Get().Add(std::move(array));
  return CUDA_SUCCESS;
}

CUresult DestroyArray(CUarray handle) {
  const auto found = Arrays::Get().Find(handle);
  if (found == nullptr || found->level) return CUDA_ERROR_INVALID_HANDLE;
  const auto array = Arrays::Get().Remove(handle);
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : array->context->heap().Free(array->data);
}

CUresult MakeMipmappedArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                            CUmipmappedArray* handle) {
  if (levels == 0) return CUDA_ERROR_INVALID_VALUE;
  auto mipmapped = std::make_shared<MipmappedArray>();
  mipmapped->context = &context;
  CUDA_ARRAY3D_DESCRIPTOR level_shape = shape;
  const auto halve = [](std::size_t extent) { return extent == 0 ? 0 : std::max<std::size_t>(extent / 2, 1); };
  for (unsigned level = 0; level < levels; ++level) {
    std::shared_ptr<Array> array;
    if (const CUresult result = AllocateArray(context, level_shape, &array); result != CUDA_SUCCESS) {
      for (const auto& made : mipmapped->levels) {
        Arrays::Get().Remove(made->handle());
        context.heap().Free(made->data);
      }
      return result;
    }
    array->level = true;
    mipmapped->levels.push_back(array);
    Arrays::Get().Add(std::move(array));
    if (level_shape.Width <= 1 && level_shape.Height <= 1 && level_shape.Depth <= 1) break;
    level_shape.Width = halve(level_shape.Width);
    level_shape.Height = halve(level_shape.Height);
    level_shape.Depth = halve(level_shape.Depth);
  }
  *handle = MipmappedArrays::Get().Add(std::move(mipmapped));
  return CUDA_SUCCESS;
}

CUresult DestroyMipmappedArray(CUmipmappedArray handle) {
  const auto mipmapped = MipmappedArrays::Get().Remove(handle);
  if (mipmapped == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& level : mipmapped->levels) {
    Arrays::Get().Remove(level->handle());
    mipmapped->context->heap().Free(level->data);
  }
  return CUDA_SUCCESS;
}

void ForgetArraysOf(const Context& context) {
  const auto of_context = [&](const auto& object) { return object.context == &context; };
  MipmappedArrays::Get().RemoveIf(of_context);
  Arrays::Get().RemoveIf(of_context);
}

}  // namespace tessera::soft
