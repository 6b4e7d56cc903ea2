#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct CdiChoices {
  std::vector<std::string> vgpus;  // names; empty: all that last
  std::string output = "-";        // path; "-": stdout
  bool driver = false;             // device nodes and libraries of the NVIDIA driver, too
};

// `tessera cdi generate`: writes a CDI specification with a device for each vGPU of the daemon. Those that end with
// their program are left out unless they are named, and those whose names CDI does not allow with a word on stderr.
// A file is replaced whole. ENOENT where nothing would be in it.
Result<int> GenerateCdi(const Common& common, const CdiChoices& choices);

}  // namespace tessera::cli
