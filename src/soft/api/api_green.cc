// Green contexts. The multiprocessors of a device are split into groups of kGroup, as of compute capability 7; a group
// has no place among them, because all are the same.
#include <algorithm>
#include <cstring>
#include <span>

#include "soft/api/api.h"
#include "soft/device/green_context.h"

TESSERA_CUDA_API cuDevicePrimaryCtxRetain(tessera::cuda::CUcontext*, tessera::cuda::CUdevice);
TESSERA_CUDA_API cuDevicePrimaryCtxRelease_v2(tessera::cuda::CUdevice);
TESSERA_CUDA_API cuStreamCreateWithPriority(tessera::cuda::CUstream*, unsigned, int);

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr unsigned kGroup = 2;

struct Description {
  unsigned multiprocessors;
};

CUdevResource Resource(unsigned multiprocessors) {
  CUdevResource resource;
  std::memset(&resource, 0, sizeof resource);
  resource.type = multiprocessors == 0 ? CU_DEV_RESOURCE_TYPE_INVALID : CU_DEV_RESOURCE_TYPE_SM;
  resource.sm.smCount = multiprocessors;
  return resource;
}

bool IsSm(const CUdevResource& resource) { return resource.type == CU_DEV_RESOURCE_TYPE_SM && resource.sm.smCount > 0; }

}  // namespace

TESSERA_CUDA_API cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* resource, CUdevResourceType type) {
  return WithDevice(ordinal, [&](Device& device) {
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    return Give(resource, Resource(device.multiprocessors()));
  });
}

TESSERA_CUDA_API cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count, const CUdevResource* input,
                                             CUdevResource* rest, unsigned flags, unsigned least) {
  if (count == nullptr || input == nullptr || !IsSm(*input) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned size = (std::max(least, 1u) + kGroup - 1) / kGroup * kGroup;
  const unsigned possible = input->sm.smCount / size;
  if (groups == nullptr) return Give(count, possible);
  *count = std::min(*count, possible);
  if (*count == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  std::ranges::fill(std::span(groups, *count), Resource(size));
  if (rest != nullptr) *rest = Resource(input->sm.smCount - *count * size);
  return CUDA_SUCCESS;
}

// What it takes is never given back, as with the real driver.
TESSERA_CUDA_API cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (description == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned sum = 0;
  for (const CUdevResource& resource : std::span(resources, count)) {
    if (!IsSm(resource)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sum += resource.sm.smCount;
  }
  *description = reinterpret_cast<CUdevResourceDesc>(new Description{sum});
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc description, CUdevice ordinal, unsigned flags) {
  if (green == nullptr || description == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext primary = nullptr;
  if (const CUresult retained = cuDevicePrimaryCtxRetain(&primary, ordinal); retained != CUDA_SUCCESS) return retained;
  const unsigned multiprocessors = reinterpret_cast<const Description*>(description)->multiprocessors;
  *green = reinterpret_cast<CUgreenCtx>(&GreenContext::Make(*Context::FromHandle(primary), multiprocessors));
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuGreenCtxDestroy(CUgreenCtx green) {
  GreenContext* context = GreenContext::FromHandle(green);
  if (context == nullptr || !context->open.exchange(false)) return CUDA_ERROR_INVALID_HANDLE;
  return cuDevicePrimaryCtxRelease_v2(context->primary.device().index());
}

TESSERA_CUDA_API cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  const GreenContext* found = GreenContext::FromHandle(green);
  return found == nullptr || !found->open ? CUDA_ERROR_INVALID_HANDLE : Give(context, found->handle());
}

// Seen on driver 580: no stream of a green context is blocking, and this call says so.
TESSERA_CUDA_API cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned flags, int priority) {
  const GreenContext* found = GreenContext::FromHandle(green);
  if (found == nullptr || !found->open) return CUDA_ERROR_INVALID_HANDLE;
  if (stream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  PushContext(Current::FromHandle(found->handle()));
  const CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
  PopContext();
  return result;
}

TESSERA_CUDA_API cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource* resource, CUdevResourceType type) {
  const GreenContext* found = GreenContext::FromHandle(green);
  if (found == nullptr || !found->open) return CUDA_ERROR_INVALID_HANDLE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  return Give(resource, Resource(found->multiprocessors));
}

}  // namespace tessera::soft
