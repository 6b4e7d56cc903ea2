// Changes of running pods' vGPUs, by an annotation of the pod.
#pragma once

#include <string>
#include <vector>

#include "client/json.h"

namespace tessera::kubernetes {

// A VGpuConfig as JSON, without apiVersion and kind if one likes. It goes before the parameters of the pod's claims.
inline constexpr const char* kConfigAnnotation = "gpu.tessera.dev/config";

// What a pod asks for one of its claims.
struct AskedChange {
  std::string namespace_name, claim, pod;
  std::string config;  // the annotation
  bool operator==(const AskedChange&) const = default;
};

// Of a Pod object, for each of its claims that has an object; empty without the annotation, or when the pod has ended.
std::vector<AskedChange> ChangesAskedBy(const client::Json& pod);

}  // namespace tessera::kubernetes
