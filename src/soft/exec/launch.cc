#include "soft/exec/launch.h"

#include <cstring>

#include "soft/device/context.h"
#include "soft/module/library.h"
#include "soft/module/occupancy.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// Each of the three extents lies between 1 and its attribute.
bool Fits(const Device& device, const ptx::Dim3& extent, CUdevice_attribute x, CUdevice_attribute y,
          CUdevice_attribute z) {
  const auto fits = [&](std::uint32_t value, CUdevice_attribute limit) {
    return value >= 1 && value <= static_cast<std::uint32_t>(device.Attribute(limit));
  };
  return fits(extent.x, x) && fits(extent.y, y) && fits(extent.z, z);
}

CUresult CheckShape(Context& context, const LaunchRequest& request, const Function& function) {
  const Device& device = context.device();
  if (!Fits(device, request.grid, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) ||
      !Fits(device, request.block, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (request.block.Count() > function.kernel.max_threads ||
      request.dynamic_shared_bytes > static_cast<std::uint32_t>(function.max_dynamic_shared_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!request.cooperative) return CUDA_SUCCESS;
  const int resident =
      BlocksPerMultiprocessor(function, static_cast<int>(request.block.Count()), request.dynamic_shared_bytes);
  const std::uint64_t at_once = std::uint64_t{context.device().multiprocessors()} * static_cast<unsigned>(resident);
  return request.grid.Count() <= at_once ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult CopyEach(const ptx::Kernel& kernel, void** parameters, std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(bytes.data() + kernel.parameters[i].offset, parameters[i], kernel.parameters[i].bytes);
  }
  return CUDA_SUCCESS;
}

CUresult CopyBuffer(void** extra, std::vector<std::byte>& bytes) {
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = *static_cast<std::size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (size > bytes.size()) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (buffer == nullptr && size != 0) return CUDA_ERROR_INVALID_VALUE;
  if (size != 0) std::memcpy(bytes.data(), buffer, size);
  return CUDA_SUCCESS;
}

CUresult CopyParameters(const ptx::Kernel& kernel, const LaunchRequest& request, std::vector<std::byte>& bytes) {
  if (request.parameters != nullptr && request.extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (request.extra != nullptr) return CopyBuffer(request.extra, bytes);
  if (request.parameters != nullptr) return CopyEach(kernel, request.parameters, bytes);
  return kernel.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult ResolveLaunch(Context& context, const LaunchRequest& request, KernelWork* work) {
  std::shared_ptr<Function> function;
  if (const CUresult result = FindFunction(context, request.function, &function); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckShape(context, request, *function); result != CUDA_SUCCESS) return result;
  const ptx::Kernel& kernel = function->kernel;
  std::vector<std::byte> bytes(kernel.parameter_bytes);
  if (const CUresult result = CopyParameters(kernel, request, bytes); result != CUDA_SUCCESS) return result;
  *work = {.function = std::move(function),
           .grid = request.grid,
           .block = request.block,
           .dynamic_shared_bytes = request.dynamic_shared_bytes,
           .parameters = std::move(bytes),
           .cooperative = request.cooperative};
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
