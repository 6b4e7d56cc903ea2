// What a pod says about its vGPUs, and the terms that follow from it: resources in the words of HAMi, annotations in
// those of FaST-GShare.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/json.h"
#include "kubernetes/device_plugin/virtual_device.h"

namespace tessera::kubernetes {

// Resources that the scheduler counts for the node as a whole. A container has them in all, for its virtual devices in
// equal parts.
inline constexpr const char* kMemoryResource = "tessera.dev/gpumem";     // MiB
inline constexpr const char* kComputeResource = "tessera.dev/gpucores";  // percent of a GPU's time

// The container of that name in the Pod; ENOENT if there is none. The reference is into `pod`.
Result<const Json*> ContainerOf(const Json& pod, const std::string& name);
// What the container asks of a resource; 0 if it does not. EINVAL: it is no quantity.
Result<std::uint64_t> AskedOf(const Json& container, const char* resource);

// The fields of POST /v1/vgpus for a vGPU of the container, but for name, gpu and gang. EINVAL names the word of the
// pod that is unknown or wrong. What a right value is, the daemon decides.
//
// Without a word, the vGPU may have the whole memory of its GPU, which is promised none of it, and time by its weight.
Result<Json> TermsOf(const Json& pod, const std::string& container, const ContainerVGpu& vgpu);
// Those of a pod that says nothing.
Json TermsOf(const ContainerVGpu& vgpu);

// Bytes that the container needs for each of its virtual devices; 0 if it is promised none. What is wrong counts as
// none.
std::uint64_t MemoryForEach(const Json& pod, const std::string& container);

}  // namespace tessera::kubernetes
