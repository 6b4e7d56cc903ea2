// A driver library that does nothing, as fast as possible: what remains when a program runs on it is the shim's own
// cost. It plays the GPU whose UUID is in $STUB_GPU_UUID (32 hexadecimal digits).
#include <stdlib.h>
#include <string.h>

#include <cstdint>

#include "cuda/cuda_abi.h"

using namespace tessera::cuda;

#define STUB extern "C" [[gnu::visibility("default"), gnu::noinline]] CUresult

namespace {
int context_storage;
CUcontext const kContext = reinterpret_cast<CUcontext>(&context_storage);
CUevent const kEvent = reinterpret_cast<CUevent>(&context_storage);
}  // namespace

STUB cuInit(unsigned) { return CUDA_SUCCESS; }
STUB cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
STUB cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  memset(uuid, 0, sizeof *uuid);
  const char* text = getenv("STUB_GPU_UUID");
  for (int i = 0; text && i < 16 && text[2 * i]; ++i) {
    const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
    uuid->bytes[i] = static_cast<char>(strtoul(digits, nullptr, 16));
  }
  return CUDA_SUCCESS;
}
STUB cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice) { return *context = kContext, CUDA_SUCCESS; }
STUB cuCtxGetCurrent(CUcontext* context) { return *context = kContext, CUDA_SUCCESS; }
STUB cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
STUB cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
STUB cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
STUB cuEventCreate(CUevent* event, unsigned) { return *event = kEvent, CUDA_SUCCESS; }
STUB cuCtxRecordEvent(CUcontext, CUevent) { return CUDA_SUCCESS; }
STUB cuEventQuery(CUevent) { return CUDA_SUCCESS; }
STUB cuModuleLoadData(CUmodule*, const void*) { return CUDA_SUCCESS; }
STUB cuModuleGetFunction(CUfunction*, CUmodule, const char*) { return CUDA_SUCCESS; }
STUB cuCtxSynchronize() { return CUDA_SUCCESS; }
STUB cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                    void**) {
  return CUDA_SUCCESS;
}
STUB cuGetProcAddress(const char*, void**, int, std::uint64_t) { return CUDA_ERROR_NOT_FOUND; }
