#pragma once

#include <string>

#include "base/install/installation.h"
#include "base/result.h"
#include "cdi/spec.h"
#include "client/api_client.h"

namespace tessera::kubernetes {

inline constexpr const char* kCdiKind = "tessera.dev/vgpu";

// What containers get beside their vGPU.
struct ContainerSetup {
  std::string run_dir;         // of tesserad
  bool driver = true;          // the NVIDIA driver comes from us, and not from another CDI device
  std::string host_root = {};  // where the machine's root is here, to find that driver; empty: it is ours
  Installation installation = Installation::Find();  // whose libraries they get; its path is the machine's
};

// Writes a CDI specification of which the devices, and what the setup does not know, are given: it replaces the file at
// `path`, and only root can read it, because it may have keys. `daemon` is asked whether its GPUs are soft. Blocks
// until it is on the disk; any thread. ECONNREFUSED: tesserad does not answer; ENOENT: the driver, or a file of a soft
// GPU, is missing.
Result<void> WriteCdiFile(const std::string& path, cdi::SpecFacts facts, const ContainerSetup& setup,
                          const client::ApiClient& daemon);

}  // namespace tessera::kubernetes
