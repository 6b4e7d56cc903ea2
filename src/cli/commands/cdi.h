#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct CdiChoices {
  std::vector<std::string> vgpus;  // names; empty: all that are not ephemeral
  std::string output = "-";        // path; "-": stdout
  bool driver = false;             // include device nodes and libraries of the NVIDIA driver
  bool require_gate = false;       // containers start only behind the kernel gate
};

// `tessera cdi generate`: writes a CDI specification with a device for each vGPU of the daemon. Ephemeral vGPUs are
// skipped unless they are named; vGPUs whose names CDI does not allow are skipped with a message on stderr. The file is
// replaced atomically. ENOENT if there is no vGPU.
Result<int> GenerateCdi(const Common& common, const CdiChoices& choices);

struct SeccompChoices {
  std::vector<std::string> vgpus;  // names, one for each GPU; empty: the container's own
  std::string base = "/usr/share/containers/seccomp.json";
  std::string output = "-";  // path; "-": stdout
};

// `tessera cdi seccomp`: writes the engine's seccomp profile with the kernel gate in it, for containers in these vGPUs.
// Needs no daemon. The file is replaced atomically.
Result<int> WriteSeccompProfile(const Common& common, const SeccompChoices& choices);

}  // namespace tessera::cli
