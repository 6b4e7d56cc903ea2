#pragma once

#include <string>
#include <string_view>

namespace tessera::kubernetes {

// Of the driver, as DeviceClasses and claims name it.
inline constexpr const char* kDriver = "gpu.tessera.dev";

// Of the parameters that the driver understands.
inline constexpr const char* kParametersVersion = "gpu.tessera.dev/v1alpha1";
inline constexpr const char* kParametersKind = "VGpuConfig";

// The name of a GPU's device in slices and claims, a DNS label: "gpu-911ede30-…".
std::string DeviceNameOf(std::string_view uuid);

// Whether it is the UID of an object.
bool IsUid(std::string_view text);
// The claim's UID in the name of its vGPU, which ends with ".UID" or ".UID-N"; empty: it is no claim's.
std::string UidIn(const std::string& vgpu);

}  // namespace tessera::kubernetes
