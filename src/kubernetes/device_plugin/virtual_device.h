// Virtual devices of the device plugin: each GPU is offered several times, and a container gets some of these.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/json.h"

namespace tessera::kubernetes {

using client::Json;

// What pods ask for.
inline constexpr const char* kVGpuResource = "tessera.dev/vgpu";

// One of those of a GPU, from 0 on. Its ID is "UUID::NUMBER".
struct VirtualDevice {
  std::string gpu_uuid;
  std::uint32_t number = 0;
  auto operator<=>(const VirtualDevice&) const = default;
};

std::string IdOf(const VirtualDevice& device);
// EINVAL if it is no such ID.
Result<VirtualDevice> ReadId(std::string_view id);

// A device as the kubelet is told of it.
struct OfferedDevice {
  std::string id;
  bool healthy = true;
  bool operator==(const OfferedDevice&) const = default;
};
// `each` for every GPU of the daemon's answer to GET /v1/gpus; those of a failed GPU are not healthy. A GPU whose IDs
// would be longer than the kubelet's 63 characters is left out.
std::vector<OfferedDevice> OfferedDevices(const Json& gpus, std::uint32_t each);

// The vGPU that a container has on a GPU. One who has several virtual devices of a GPU has one vGPU there, as a program
// can join no more, with the weight of them all.
struct ContainerVGpu {
  std::string gpu_uuid;
  std::string name;           // by the lowest number: "device-plugin.UUID.NUMBER"
  std::uint32_t devices = 0;  // how many
  bool operator==(const ContainerVGpu&) const = default;
};
// In the order of their GPUs' UUIDs. EINVAL for a wrong ID, or none.
Result<std::vector<ContainerVGpu>> VGpusFor(const std::set<std::string>& ids);

// Name of the CDI device that stands for these vGPUs, always the same: that of the vGPU, or for several one that is
// made from their names.
std::string CdiDeviceOf(const std::vector<ContainerVGpu>& vgpus);

// Whether a vGPU, or a CDI device, is the device plugin's.
bool IsOfDevicePlugin(std::string_view name);

}  // namespace tessera::kubernetes
