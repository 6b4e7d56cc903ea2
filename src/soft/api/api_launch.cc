// Kernel launches in all forms.
#include <cstdio>
#include <span>

#include "soft/api/stream_variants.h"
#include "soft/exec/engine.h"
#include "soft/exec/launch.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

CUresult Launch(const LaunchRequest& request, CUstream handle) {
  return WithStream(handle, [&](const auto& stream) {
    KernelWork work;
    if (const CUresult result = ResolveLaunch(stream->context, request, &work); result != CUDA_SUCCESS) {
      return RefuseWork(stream, result);
    }
    work.multiprocessors = stream->legacy ? CurrentMultiprocessors() : stream->multiprocessors;
    stream->context.engine().WaitForRoom(*stream);
    return Submit(stream, std::move(work));
  });
}

// Takes what matters from the attributes of a launch. Hints are ignored; what would change the result is refused.
CUresult ReadAttributes(std::span<const CUlaunchAttribute> attributes, LaunchRequest& request) {
  for (const CUlaunchAttribute& attribute : attributes) {
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        request.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& cluster = attribute.value.clusterDim;
        if (cluster.x == 1 && cluster.y == 1 && cluster.z == 1) break;
        std::fputs("tessera soft GPU: it has no thread block clusters\n", stderr);
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        std::fprintf(stderr, "tessera soft GPU: it does not know launch attribute %d\n", attribute.id);
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        break;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

TESSERA_CUDA_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                CUstream stream, void** parameters, void** extra) {
  return Launch({.function = function,
                 .grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .dynamic_shared_bytes = shared_bytes,
                 .parameters = parameters,
                 .extra = extra},
                stream);
}
TESSERA_EXPORT_PTSZ(cuLaunchKernel)

TESSERA_CUDA_API cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                           CUstream stream, void** parameters) {
  return Launch({.function = function,
                 .grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .dynamic_shared_bytes = shared_bytes,
                 .parameters = parameters,
                 .cooperative = true},
                stream);
}
TESSERA_EXPORT_PTSZ(cuLaunchCooperativeKernel)

TESSERA_CUDA_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (config == nullptr || (config->attrs == nullptr && config->numAttrs != 0)) return CUDA_ERROR_INVALID_VALUE;
  LaunchRequest request = {.function = function,
                           .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                           .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                           .dynamic_shared_bytes = config->sharedMemBytes,
                           .parameters = parameters,
                           .extra = extra};
  const CUresult result = ReadAttributes({config->attrs, config->numAttrs}, request);
  return result == CUDA_SUCCESS ? Launch(request, config->hStream) : result;
}

// The stream is inside the structure, where OwnStreamIfNull does not look.
TESSERA_CUDA_API cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** parameters,
                                       void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig own = *config;
  own.hStream = OwnStreamIfNull(own.hStream);
  return cuLaunchKernelEx(&own, function, parameters, extra);
}

}  // namespace tessera::soft
