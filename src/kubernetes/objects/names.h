#pragma once

#include <string>
#include <string_view>

namespace tessera::kubernetes {

// Of the driver, as DeviceClasses and claims name it.
inline constexpr const char* kDriver = "gpu.tessera.dev";

// The name of a GPU's device in slices and claims, a DNS label: "gpu-911ede30-…".
inline std::string DeviceNameOf(std::string_view uuid) {
  std::string name(uuid);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name.starts_with("gpu-") ? name : "gpu-" + name;
}

}  // namespace tessera::kubernetes
