// Shared by the files that define the driver API's functions.
#pragma once

#include "cuda/cuda_abi.h"
#include "soft/device/context.h"

// Functions of the driver API are visible outside the library; all else is hidden.
#define TESSERA_CUDA_API extern "C" __attribute__((visibility("default"))) ::tessera::cuda::CUresult

namespace tessera::soft {

// Gives an answer through an argument that must not be null.
template <typename Value, typename Answer>
cuda::CUresult Give(Value* out, const Answer& answer) {
  if (out == nullptr) return cuda::CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<Value>(answer);
  return cuda::CUDA_SUCCESS;
}

// Runs `function(device)` if there is a device of this number.
template <typename Function>
cuda::CUresult WithDevice(cuda::CUdevice ordinal, Function&& function) {
  const ApiCall call;
  if (call.state() != cuda::CUDA_SUCCESS) return call.state();
  Device* device = DeviceOf(ordinal);
  return device == nullptr ? cuda::CUDA_ERROR_INVALID_DEVICE : function(*device);
}

}  // namespace tessera::soft
