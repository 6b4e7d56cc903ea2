#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::cli {

// What is put under the kernel gate.
struct GuardedProgram {
  std::string run_dir;             // of the daemon that will answer its calls
  std::vector<std::string> vgpus;  // names, at most one per GPU
  std::string name;                // for people
};

// Puts this process behind the daemon's kernel gate (`tessera run --enforce kernel`): from here on its calls of the
// kernel driver that allocate memory or steer channels wait for the daemon's word, and so do those of whatever it
// becomes or starts. Nothing else changes, so call it last before exec; it cannot be undone. One thread.
//
// `install_filter` makes the filter and gives its listener (guard::InstallFilter). It is called once the daemon has
// agreed, and on return the daemon has the listener: no call waits for somebody who is not there. Blocks for at most
// kGuardSeconds a step. ECONNREFUSED when no daemon answers, ETIMEDOUT when it accepts but says nothing, ECONNRESET or
// EPROTO when it does not know the gate, the daemon's own code and words when it refuses.
Result<void> EnterKernelGate(const GuardedProgram& program, const std::function<Result<UniqueFd>()>& install_filter);

inline constexpr int kGuardSeconds = 10;

}  // namespace tessera::cli
