// Arrays and mipmapped arrays.
#include "soft/api/api.h"
#include "soft/device/array.h"
#include "soft/exec/engine.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

template <typename Function>
CUresult WithArray(CUarray handle, Function&& function) {
  return WithContext([&](Context&) {
    Array* array = Array::FromHandle(handle);
    return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : function(*array);
  });
}

}  // namespace

TESSERA_CUDA_API cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  return WithContext([&](Context& context) {
    return handle == nullptr || shape == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeArray(context, *shape, handle);
  });
}

TESSERA_CUDA_API cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* shape) {
  if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR full = {
      .Width = shape->Width, .Height = shape->Height, .Format = shape->Format, .NumChannels = shape->NumChannels};
  return cuArray3DCreate_v2(handle, &full);
}

TESSERA_CUDA_API cuArrayDestroy(CUarray handle) {
  return WithContext([&](Context& context) {
    context.engine().Synchronize();
    return DestroyArray(handle);
  });
}

TESSERA_CUDA_API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* shape, CUarray handle) {
  return WithArray(handle, [&](Array& array) { return Give(shape, array.shape); });
}

TESSERA_CUDA_API cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                        unsigned levels) {
  return WithContext([&](Context& context) {
    if (handle == nullptr || shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return MakeMipmappedArray(context, *shape, levels, handle);
  });
}

TESSERA_CUDA_API cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray handle, unsigned index) {
  return WithContext([&](Context&) {
    const auto mipmapped = Handles<MipmappedArray, CUmipmappedArray>::Get().Find(handle);
    if (mipmapped == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= mipmapped->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    return Give(level, mipmapped->levels[index]->handle());
  });
}

TESSERA_CUDA_API cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return WithContext([&](Context& context) {
    context.engine().Synchronize();
    return DestroyMipmappedArray(handle);
  });
}

}  // namespace tessera::soft
