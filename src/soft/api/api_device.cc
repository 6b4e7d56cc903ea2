// cuInit, devices, errors.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "cuda/errors.h"
#include "soft/api/api.h"
#include "soft/checkpoint/checkpoint_service.h"
#include "soft/shared/soft_gpu.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

CUresult GiveText(char* out, int bytes, const std::string& text) {
  if (out == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(out, static_cast<std::size_t>(bytes), "%s", text.c_str());
  return CUDA_SUCCESS;
}

}  // namespace

TESSERA_CUDA_API cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult made = InitDriver();
  if (made != CUDA_SUCCESS) return made;
  static std::once_flag once;
  std::call_once(once, [] { StartCheckpointService(Devices().front()->state()); });
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuDriverGetVersion(int* version) { return Give(version, CUDA_VERSION); }

TESSERA_CUDA_API cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = ResultName(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

TESSERA_CUDA_API cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = ResultText(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

TESSERA_CUDA_API cuDeviceGetCount(int* count) {
  const CUresult state = DriverState();
  if (state == CUDA_ERROR_NO_DEVICE) return Give(count, 0);
  return state != CUDA_SUCCESS ? state : Give(count, Devices().size());
}

TESSERA_CUDA_API cuDeviceGet(CUdevice* device, int ordinal) {
  return WithDevice(ordinal, [&](Device& found) { return Give(device, found.index()); });
}

TESSERA_CUDA_API cuDeviceGetName(char* name, int bytes, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device&) { return GiveText(name, bytes, kDeviceName); });
}

TESSERA_CUDA_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::ranges::copy(device.state().Uuid(device.told_index()), uuid->bytes);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) { return cuDeviceGetUuid_v2(uuid, ordinal); }

TESSERA_CUDA_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) { return Give(bytes, device.spec().memory_bytes); });
}

// The first version of the driver API counted in 32 bits.
TESSERA_CUDA_API cuDeviceTotalMem(unsigned* bytes, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) {
    return Give(bytes, std::min<std::uint64_t>(device.spec().memory_bytes, UINT32_MAX));
  });
}

TESSERA_CUDA_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) {
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    return Give(value, device.Attribute(attribute));
  });
}

TESSERA_CUDA_API cuDeviceGetPCIBusId(char* text, int bytes, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) { return GiveText(text, bytes, device.BusId()); });
}

TESSERA_CUDA_API cuDeviceGetByPCIBusId(CUdevice* ordinal, const char* text) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::string wanted = text;
  const auto found = std::ranges::find_if(Devices(), [&](const auto& device) {
    const std::string id = device->BusId();
    // Domain and function may be left out.
    return strcasecmp(id.c_str(), text) == 0 || strcasecmp(id.substr(5).c_str(), text) == 0 ||
           strcasecmp(id.substr(5, 5).c_str(), text) == 0;
  });
  return found == Devices().end() ? CUDA_ERROR_INVALID_DEVICE : Give(ordinal, (*found)->index());
}

// Devices of one process share its address space, so each can access the others.
TESSERA_CUDA_API cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  return WithDevice(ordinal,
                    [&](Device&) { return WithDevice(peer, [&](Device&) { return Give(can, ordinal != peer); }); });
}

}  // namespace tessera::soft
